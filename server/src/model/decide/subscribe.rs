//! Subscriptions: made, ended, told.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Plan;
use super::message::Letter;
use crate::model::subscription::{HOPS, MAX_HOPS, transition};
use crate::model::{
    Agent, Doing, Kind, Notice, Party, Rejection, Subscribe, SubscriptionFired, SubscriptionId,
    ToolSubscribe, ToolUnsubscribe, Unsubscribe,
};

impl Plan<'_, '_> {
    pub(super) fn tool_subscribe(
        &mut self,
        agent: &Agent,
        args: &Subscribe,
    ) -> Result<Value, Rejection> {
        let target = self.state.neighbour(agent, &args.agent_name)?;
        let (from, to) = transition(&args.transition)?;
        let limit = self.cx.policy.max_subscriptions;
        if agent.subscriptions.len() >= limit {
            return Err(Rejection::TooMany { what: "subscriptions", limit });
        }
        let subscription_id = SubscriptionId::fresh(self.cx.ids);
        let (target, target_id) = (target.name.clone(), target.id);
        let once = args.once;
        self.push(
            agent.session.id,
            ToolSubscribe { subscription_id, target, target_id, from, to, once },
        );
        Ok(json!({ "status": "subscribed", "subscription_id": subscription_id }))
    }

    pub(super) fn tool_unsubscribe(
        &mut self,
        agent: &Agent,
        args: &Unsubscribe,
    ) -> Result<Value, Rejection> {
        let wanted = &args.subscription_id;
        let found = agent.subscriptions.iter().find(|one| one.id.to_string() == *wanted);
        let Some(subscription) = found else {
            let id = wanted.chars().take(80).collect();
            return Err(Rejection::SubscriptionNotFound { id });
        };
        self.push(agent.session.id, ToolUnsubscribe { subscription_id: subscription.id });
        Ok(json!({ "status": "unsubscribed" }))
    }

    /// Tells an agent of a transition that it watches. A full inbox takes no more of them, and
    /// agents that wake each other in a circle are not woken for ever: what is not told is
    /// counted, and the count is told with the next one.
    pub(in crate::model) fn tell_transition(&mut self, agent: &Agent, notice: Notice) {
        let Notice { subscription: subscription_id, from, to, hops } = notice;
        let found = agent.subscriptions.iter().find(|one| one.id == subscription_id);
        let Some(subscription) = found else { return };
        let target_id = subscription.target;
        let told = self.check_space(Party::Agent(agent.id)).is_ok() && hops <= MAX_HOPS;
        let ended = subscription.once && told || to == Doing::Terminated;
        self.push(
            agent.session.id,
            SubscriptionFired { subscription_id, target_id, from, to, told, ended },
        );
        // An end is told whatever the inbox holds: nothing comes after it.
        if !told && to != Doing::Terminated {
            return;
        }
        let target = self.state.party_name(Party::Agent(target_id));
        let mut text = match to {
            Doing::Terminated => format!("{target} has ended, and with it your subscription"),
            _ => format!("{target} went from {} to {}", from.as_str(), to.as_str()),
        };
        if subscription.missed > 0 {
            let missed = subscription.missed;
            text += &format!(
                "; {missed} times before were not told: your inbox was full, or agents woke each \
                 other in a circle"
            );
        }
        let metadata = [
            ("subscription_id".to_owned(), subscription_id.to_string()),
            (HOPS.to_owned(), hops.to_string()),
        ];
        self.enqueue(Letter {
            metadata: BTreeMap::from(metadata),
            ..Letter::new(Party::System, Party::Agent(agent.id), Kind::Notification, text)
        });
    }
}
