//! How an event changes the state. Infallible: what refers to nothing changes nothing.

use super::turn::{Call, Over};
use super::{
    Activity, Agent, AgentCreated, AgentId, AgentTerminated, Answered, Entry, Event, Gate, Kind,
    Level, Message, MessageEnqueued, MessageId, Multicast, Ready, Reminder, Requests, Session,
    SessionId, SessionState, State, Timestamp, Turn, TurnId, Usage, Wait, Workspace,
};

impl State {
    /// Applies the next event. The only way in which state changes, live and in recovery.
    pub fn apply(&mut self, entry: &Entry) {
        self.seq = entry.seq;
        self.clean = matches!(entry.event, Event::DaemonStopped(_));
        match entry.session {
            Some(session) => self.apply_to_session(session, entry),
            None => self.apply_to_daemon(entry),
        }
    }

    fn apply_to_daemon(&mut self, entry: &Entry) {
        match &entry.event {
            Event::MessageEnqueued(data) => {
                self.user_inbox.push_back(message(entry, data));
                self.mark_answered(data);
            }
            Event::MessageDelivered(data) => {
                self.user_inbox.retain(|message| message.id != data.message_id);
            }
            Event::SessionDeleted(data) => {
                let known = self.by_session.remove(&data.deleted_session_id);
                if let Some(id) = known {
                    self.agents.shift_remove(&id);
                }
                if let Some(parent) = data.parent {
                    self.keep_usage(parent, data.usage, known.is_some());
                }
            }
            Event::RequestRecorded(data) => {
                let key = (data.request_id.as_str(), data.fingerprint.as_str());
                let most = Requests::MAX;
                self.requests.insert(entry.at, key, data.expires, &data.outcome, most);
            }
            _ => self.apply_to_workspaces(entry),
        }
    }

    fn apply_to_workspaces(&mut self, entry: &Entry) {
        match &entry.event {
            Event::WorkspaceCreated(data) => self.insert_workspace(Workspace {
                id: data.workspace_id,
                name: data.name.clone(),
                parent: data.parent,
                root: data.root.clone(),
                view: data.view.clone(),
                git: data.git.clone(),
                owner: data.owner,
                links: Default::default(),
                network: data.network,
                env: data.env.clone(),
                limits: data.limits,
                created_at: entry.at,
            }),
            Event::WorkspaceUpdated(data) => {
                let Some(workspace) = self.workspaces.get_mut(&data.workspace_id) else { return };
                workspace.network = data.network.unwrap_or(workspace.network);
                workspace.limits = data.limits.unwrap_or(workspace.limits);
                for (name, value) in &data.env {
                    match value {
                        Some(value) => workspace.env.insert(name.clone(), value.clone()),
                        None => workspace.env.remove(name),
                    };
                }
            }
            Event::WorkspaceLinked(data) => {
                if let Some(workspace) = self.workspaces.get_mut(&data.workspace_id) {
                    let (source, mode, via) = (data.source.clone(), data.mode, data.via);
                    let link = super::Link { source, mode, via };
                    workspace.links.insert(data.mount_path.clone(), link);
                }
            }
            Event::WorkspaceUnlinked(data) => {
                if let Some(workspace) = self.workspaces.get_mut(&data.workspace_id) {
                    workspace.links.remove(&data.mount_path);
                }
            }
            Event::WorkspaceDeleted(data) => self.remove_workspace(data.workspace_id),
            _ => {}
        }
    }

    fn apply_to_session(&mut self, session: SessionId, entry: &Entry) {
        match &entry.event {
            Event::SessionCreated(data) => {
                let (provider, model) = (data.provider.clone(), data.model.clone());
                let mut embryo = Session::new(session, provider, model, entry.at);
                embryo.first_seq = entry.seq;
                embryo.count(entry.seq);
                self.embryos.insert(session, embryo);
                return;
            }
            Event::AgentCreated(data) => self.create_agent(session, entry.at, data),
            _ => {}
        }
        let Some(&id) = self.by_session.get(&session) else { return };
        let Some(agent) = self.agents.get_mut(&id) else { return };
        agent.session.count(entry.seq);
        let watched = self.watchers.contains_key(&id).then(|| agent.doing());
        match &entry.event {
            Event::MessageEnqueued(data) => {
                agent.receive(message(entry, data));
                self.mark_answered(data);
            }
            Event::AgentTerminated(data) => self.terminate(data),
            Event::TurnWaiting(data) => {
                agent.apply(entry);
                self.release_children(id, data.turn_id);
            }
            Event::TurnComplete(data) => self.end_turn(id, data.turn_id, entry),
            Event::TurnFailed(data) => self.end_turn(id, data.turn_id, entry),
            Event::TurnCancelled(data) => self.end_turn(id, data.turn_id, entry),
            Event::TurnInterrupted(data) => self.end_turn(id, data.turn_id, entry),
            Event::ToolSubscribe(data) => self.watch(id, data),
            Event::ToolUnsubscribe(data) => self.unwatch(id, data.subscription_id),
            Event::SubscriptionFired(data) => self.told_transition(id, data),
            Event::TurnStart(_) => {
                agent.apply(entry);
                self.book(id, Usage::TURN);
            }
            Event::UsageReported(data) => {
                agent.apply(entry);
                self.book(id, data.usage);
            }
            Event::BudgetChanged(data) => self.change_budget(id, data),
            _ => agent.apply(entry),
        }
        self.reindex(id);
        if let Some(before) = watched {
            let again = matches!(entry.event, Event::TurnInterrupted(_));
            self.note_transition(id, before, again);
        }
    }

    fn create_agent(&mut self, session: SessionId, at: Timestamp, data: &AgentCreated) {
        let Some(session) = self.embryos.remove(&session) else { return };
        let parent = data.parent_session_id.and_then(|id| self.by_session.get(&id).copied());
        if let Some(parent) = parent.and_then(|id| self.agents.get_mut(&id)) {
            parent.children.push(data.agent_id);
        }
        self.restore_agent(Agent {
            id: data.agent_id,
            name: data.name.clone(),
            parent,
            children: Vec::new(),
            role: data.role.clone(),
            instructions: data.instructions.clone(),
            workspace: data.workspace,
            workspace_subdir: data.workspace_subdir.clone(),
            workspace_access: data.workspace_access,
            metadata: data.metadata.clone(),
            session,
            activity: Activity::Idle,
            inbox: Default::default(),
            gate: Gate::Open,
            ready: None,
            born_in: data.spawned_in,
            outstanding: Vec::new(),
            multicasts: Vec::new(),
            reminders: Vec::new(),
            subscriptions: Vec::new(),
            notices: Vec::new(),
            hops: 0,
            seen_as: None,
            requests: Requests::default(),
            setbacks: 0,
            turns: Default::default(),
            account: Default::default(),
            created_at: at,
            active_at: at,
            place: Default::default(),
        });
    }

    fn terminate(&mut self, data: &AgentTerminated) {
        let Some(agent) = self.agents.get_mut(&data.agent_id) else { return };
        if !agent.is_live() {
            return;
        }
        agent.activity = Activity::Terminated;
        agent.session.state = SessionState::Terminated;
        agent.session.saved = None;
        agent.inbox = Default::default();
        agent.instructions = "".into();
        agent.metadata.clear();
        agent.ready = None;
        agent.outstanding.clear();
        agent.multicasts.clear();
        agent.reminders.clear();
        agent.notices.clear();
        let subscriptions = std::mem::take(&mut agent.subscriptions);
        agent.account.close();
        agent.requests = Requests::default();
        let (id, name, parent) = (agent.id, agent.name.clone(), agent.parent);
        self.directory.leave(id, agent.workspace);
        for subscription in subscriptions {
            self.forget_watcher(subscription.target, (id, subscription.id));
        }
        self.live -= 1;
        if let Some(ids) = self.names.get_mut(&name) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.names.remove(&name);
            }
        }
        if let Some(parent) = parent.and_then(|id| self.agents.get_mut(&id)) {
            parent.children.retain(|child| *child != id);
        }
    }

    /// Children that a turn spawned may start once it is over or blocked.
    fn release_children(&mut self, parent: AgentId, turn: TurnId) {
        let Some(children) = self.agents.get(&parent).map(|agent| agent.children.clone()) else {
            return;
        };
        for id in children {
            if let Some(child) = self.agents.get_mut(&id).filter(|c| c.born_in == Some(turn)) {
                child.born_in = None;
                self.reindex(id);
            }
        }
    }

    fn end_turn(&mut self, id: AgentId, turn: TurnId, entry: &Entry) {
        let Some(agent) = self.agents.get_mut(&id) else { return };
        if agent.turn_is(turn).is_none() {
            return;
        }
        let messages = agent.end_turn(entry);
        let left = match &entry.event {
            Event::TurnFailed(data) => &data.messages[..],
            _ => &[],
        };
        // The messages of an interrupted turn come again, and are answered then.
        if !matches!(entry.event, Event::TurnInterrupted(_)) {
            for message in messages.into_iter().chain(left.iter().copied()) {
                self.requests.set_answered(message, Answered { turn, seq: entry.seq });
            }
        }
        self.release_children(id, turn);
    }

    /// The message that this one answers needs no answer any more.
    fn mark_answered(&mut self, answer: &MessageEnqueued) {
        let Some(sender) = answer.sender.agent() else { return };
        let Some(sender) = self.agents.get_mut(&sender) else { return };
        if let Some(asked) = sender.inbox.iter_mut().find(|m| Some(m.id) == answer.reply_to) {
            asked.answered = true;
        }
    }
}

impl Session {
    fn count(&mut self, seq: u64) {
        self.events += 1;
        self.last_seq = seq;
    }
}

impl Agent {
    fn receive(&mut self, message: Message) {
        let seq = message.seq;
        let wakes = self.wakes(&message);
        match &mut self.activity {
            Activity::Waiting(_, wait)
                if wait.over.is_none() && message.reply_to == Some(wait.request) =>
            {
                wait.over = Some(Over::Answered(message.id));
                self.ready = Some(Ready::for_turn(seq));
            }
            Activity::Idle if wakes && !self.account.is_held() => self.want_turn(seq),
            Activity::Idle | Activity::Waiting(..) | Activity::Busy(_) | Activity::Terminated => {}
        }
        self.outstanding.retain(|request| message.reply_to != Some(*request));
        let copies = self.multicasts.iter_mut().flat_map(|multicast| &mut multicast.copies);
        for copy in copies.filter(|copy| message.reply_to == Some(copy.message)) {
            copy.answered = true;
            copy.failed = message.kind == Kind::Error;
        }
        self.insert(message);
    }

    /// Applies an event that concerns this agent alone.
    fn apply(&mut self, entry: &Entry) {
        match &entry.event {
            Event::AgentUpdated(data) => {
                if let Some(instructions) = &data.instructions {
                    self.instructions = instructions.clone();
                    self.session.stale = matches!(
                        self.session.state,
                        SessionState::Active | SessionState::Suspending
                    );
                }
                if let Some(role) = &data.role {
                    self.role.clone_from(role);
                }
            }
            Event::MetadataUpdated(data) => {
                match &data.value {
                    Some(value) => self.metadata.insert(data.key.clone(), value.clone()),
                    None => self.metadata.remove(&data.key),
                };
            }
            Event::ToolGate(data) => self.set_gate(data.action),
            Event::ToolPermitTurn(_) => self.give_permit(),
            Event::MessageDelivered(data) => self.remove_message(data.message_id, entry.at),
            Event::MessageDiscarded(data) => {
                self.remove_message(data.message_id, entry.at);
                self.rest_without_mail();
            }
            Event::MessageSetAside(data) => {
                self.set_aside(data.message_id, (entry.seq, entry.at));
            }
            Event::MessageRetried(data) => self.try_again(data.message_id, entry.seq),
            Event::MessageCollected(data) => {
                if let Some(turn) = self.turn_mut() {
                    turn.messages.push(data.message_id);
                }
            }
            _ => self.apply_to_attention(entry),
        }
    }

    /// Applies an event about what it wants to be told.
    fn apply_to_attention(&mut self, entry: &Entry) {
        match &entry.event {
            Event::ReminderSet(data) => self.reminders.push(Reminder {
                id: data.reminder_id,
                reason: data.reason.clone(),
                due: data.due,
                every: data.every,
                lies: false,
            }),
            Event::ReminderCancelled(data) => {
                self.reminders.retain(|reminder| reminder.id != data.reminder_id);
            }
            Event::ReminderFired(data) => self.remind(data, entry.seq),
            Event::MulticastSent(data) => self.multicasts.push(Multicast {
                id: data.multicast_id,
                copies: data.copies.clone(),
                until: data.until,
            }),
            Event::MulticastEnded(data) => {
                self.multicasts.retain(|multicast| multicast.id != data.multicast_id);
            }
            _ => self.apply_to_account(entry),
        }
    }

    fn apply_to_account(&mut self, entry: &Entry) {
        match &entry.event {
            Event::BudgetWarning(data) => {
                self.account.tell(data.scope, data.measure, Level::Warning);
            }
            Event::BudgetExhausted(data) => {
                self.account.tell(data.scope, data.measure, Level::Exhausted);
            }
            Event::BudgetReleased(_) => self.release(entry.seq),
            Event::TurnRefused(_) => {
                self.want_no_turn();
                self.account.hold();
            }
            _ => self.apply_to_turn(entry),
        }
    }

    fn apply_to_turn(&mut self, entry: &Entry) {
        if let Some(turn) = self.turn_mut() {
            turn.backend.stall = None;
        }
        match &entry.event {
            Event::TurnStart(data) => {
                let permitted = self.use_permit();
                self.ready = None;
                let messages = data.messages.iter().filter_map(|id| self.message(*id));
                self.hops = messages.map(Message::hops).min().unwrap_or(0);
                self.session.used = entry.seq;
                self.active_at = entry.at;
                self.activity = Activity::Busy(Box::new(Turn {
                    id: data.turn_id,
                    seq: entry.seq,
                    at: entry.at,
                    messages: data.messages.clone(),
                    calls: Vec::new(),
                    permitted,
                    next_attempt: None,
                    own_failure: None,
                    cancelling: None,
                    completing: None,
                    usage: Usage::default(),
                    backend: Default::default(),
                }));
            }
            Event::UsageReported(data) => {
                if let Some(turn) = self.turn_mut().filter(|turn| turn.id == data.turn_id) {
                    turn.usage = turn.usage.plus(data.usage);
                }
            }
            Event::TurnCancelling(data) => {
                if let Some(turn) = self.turn_mut() {
                    turn.cancelling = Some(data.by);
                }
            }
            Event::TurnRetry(data) => {
                if let Some(turn) = self.turn_mut() {
                    turn.next_attempt = Some(data.attempt);
                    if data.provider.is_some() {
                        turn.own_failure.get_or_insert(data.class);
                    }
                }
            }
            Event::TurnAttempt(_) => {
                if let Some(turn) = self.turn_mut() {
                    turn.next_attempt = None;
                }
            }
            Event::AgentCompleting(data) => {
                if let Some(turn) = self.turn_mut() {
                    turn.completing = Some(data.result.clone());
                }
            }
            Event::ToolCallInvoked(data) => {
                if let Some(turn) = self.turn_mut() {
                    // Older versions did not say when the next attempt started.
                    turn.next_attempt = None;
                    turn.calls.push(Call { id: data.call_id, tool: data.tool.clone() });
                }
            }
            Event::ToolCallResult(data) => {
                if let Some(turn) = self.turn_mut() {
                    turn.calls.retain(|call| call.id != data.call_id);
                }
                let returned = Answered { turn: data.turn_id, seq: entry.seq };
                self.requests.set_returned(data.call_id, returned);
            }
            _ => self.apply_to_wait(entry),
        }
    }

    fn apply_to_wait(&mut self, entry: &Entry) {
        match &entry.event {
            Event::TurnWaiting(data) => {
                let wait = Wait {
                    call: data.call_id,
                    request: data.message_id,
                    recipient: data.recipient,
                    until: data.until,
                    on_expiry: data.on_expiry,
                    over: None,
                };
                self.activity = match std::mem::replace(&mut self.activity, Activity::Idle) {
                    Activity::Busy(turn) => Activity::Waiting(turn, Box::new(wait)),
                    other => other,
                };
                self.active_at = entry.at;
            }
            Event::WaitExpired(data) => {
                if let Activity::Waiting(_, wait) = &mut self.activity {
                    wait.over = Some(Over::Expired(data.outcome));
                    if data.outcome == super::Expiry::Pending {
                        self.outstanding.push(wait.request);
                    }
                    self.ready = Some(Ready::for_turn(entry.seq));
                }
            }
            Event::TurnResumed(_) => {
                self.activity = match std::mem::replace(&mut self.activity, Activity::Idle) {
                    Activity::Waiting(turn, _) => Activity::Busy(turn),
                    other => other,
                };
                self.ready = None;
                self.session.used = entry.seq;
                self.active_at = entry.at;
            }
            _ => self.apply_to_own_session(entry),
        }
    }

    fn apply_to_own_session(&mut self, entry: &Entry) {
        let session = &mut self.session;
        match &entry.event {
            Event::SessionOpened(_) | Event::SessionRestored(_) => {
                session.state = SessionState::Active;
                session.used = entry.seq;
                session.stale = false;
                self.has_session();
            }
            Event::SessionResuming(_) => self.want_session(entry.seq),
            Event::SessionSuspending(_) => session.state = SessionState::Suspending,
            Event::SuspendResult(data) => {
                session.state = SessionState::Suspended;
                session.suspended_at = Some(entry.at);
                session.stale = false;
                if let Some(state) = &data.provider_state {
                    session.saved = Some(state.clone());
                }
            }
            Event::SessionSaved(data) => session.saved = Some(data.provider_state.clone()),
            Event::RequestRecorded(data) => {
                let key = (data.request_id.as_str(), data.fingerprint.as_str());
                let most = Requests::MAX_OF_AGENT;
                self.requests.insert(entry.at, key, data.expires, &data.outcome, most);
            }
            _ => self.apply_to_backend(entry),
        }
    }

    fn remove_message(&mut self, id: MessageId, at: Timestamp) {
        let Some(place) = self.inbox.iter().position(|message| message.id == id) else { return };
        if let Some(message) = self.inbox.remove(place) {
            self.heard(&message, at);
        }
    }

    /// Ends the running turn and returns the messages that were in it.
    fn end_turn(&mut self, entry: &Entry) -> Vec<MessageId> {
        let waiting_mail = match &entry.event {
            Event::TurnComplete(_) => {
                self.turns.completed += 1;
                self.setbacks = 0;
                self.has_mail()
            }
            Event::TurnInterrupted(data) => {
                self.turns.interrupted += 1;
                self.setbacks += 1;
                self.give_permit_back();
                data.wakes && self.inbox.iter().any(|message| !message.set_aside)
            }
            Event::TurnFailed(data) => {
                self.turns.failed += 1;
                self.setbacks = 0;
                let class = self.turn().map_or(data.class, |turn| turn.blamed(data.class));
                if class.blames_messages() {
                    self.suspect_messages();
                }
                // What it left lies until something new comes: else it would be tried for ever.
                self.has_new_mail()
            }
            _ => {
                self.turns.cancelled += 1;
                self.setbacks = 0;
                self.has_mail()
            }
        };
        self.active_at = entry.at;
        self.ready = waiting_mail.then_some(Ready::for_turn(entry.seq));
        match std::mem::replace(&mut self.activity, Activity::Idle) {
            Activity::Busy(turn) | Activity::Waiting(turn, _) => turn.messages,
            Activity::Idle | Activity::Terminated => Vec::new(),
        }
    }
}

fn message(entry: &Entry, data: &MessageEnqueued) -> Message {
    Message {
        id: data.message_id,
        seq: entry.seq,
        at: entry.at,
        sender: data.sender,
        sender_name: data.sender_name.clone(),
        kind: data.kind,
        text: data.payload.clone(),
        reply_to: data.reply_to,
        metadata: data.metadata.clone(),
        answered: false,
        refusals: 0,
        retried: None,
        set_aside: false,
    }
}
