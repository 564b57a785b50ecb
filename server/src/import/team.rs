//! Who there is: the agents of the sessions, parents first, with names that hold here.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::line::Created;
use super::report::Report;
use super::source::Session;
use crate::model::{AgentId, EndReason, Name, SessionId, Timestamp};

/// An agent that is taken over.
pub(super) struct Member {
    pub(super) session: Session,
    pub(super) created: Created,
    /// When it was created.
    pub(super) at: Timestamp,
    pub(super) name: Name,
    /// The session of its parent; none for a root, and where there is no such parent.
    pub(super) parent: Option<SessionId>,
    /// Why it has to be ended, although its log does not end it.
    pub(super) to_end: Option<EndReason>,
    /// Whether its log ends it.
    ended: bool,
}

impl Member {
    /// Whether it goes on.
    pub(super) fn is_live(&self) -> bool {
        !self.ended && self.to_end.is_none()
    }
}

/// The agents, parents first, and otherwise in the order of their creation.
pub(super) fn assemble(sessions: Vec<Session>, report: &mut Report) -> Vec<Member> {
    let mut found = BTreeMap::new();
    let mut owners: BTreeMap<AgentId, SessionId> = BTreeMap::new();
    for session in sessions {
        let id = session.id;
        let Some(member) = Member::of(session, report) else { continue };
        let agent = member.created.agent_id;
        if agent.as_u128() <= 1 {
            report.note(format!("agents/{id} claims to be SYSTEM or USER; it was set aside"));
        } else if let Some(other) = owners.insert(agent, id) {
            owners.insert(agent, other);
            report.note(format!(
                "agents/{id} claims to be agent {agent}, which agents/{other} is; it was set aside"
            ));
        } else {
            found.insert(id, member);
        }
    }
    let mut members = in_order(found, report);
    decide_ends(&mut members, report);
    rename(&mut members, report);
    members
}

impl Member {
    fn of(session: Session, report: &mut Report) -> Option<Self> {
        let id = session.id;
        let lines = session.log.lines.iter().filter(|line| line.event == "agent.created");
        let mut all = lines.filter_map(|line| Some((line.at, line.data::<Created>()?)));
        let Some((at, first)) = all.next() else {
            report.note(format!(
                "agents/{id} has no agent.created: it is an orphan, and was left aside"
            ));
            return None;
        };
        let mut created = first.clone();
        for (_, later) in all {
            // The same agent written again is its newest form. Another one has no claim here.
            if later.agent_id == first.agent_id {
                created = later;
            } else {
                report.note(format!(
                    "agents/{id} has a second agent.created, of agent {}: it was passed over",
                    later.agent_id
                ));
            }
        }
        let ended = session.log.lines.iter().any(|line| line.event == "agent.terminated");
        let to_end =
            (!ended && session.record.state == "terminated").then_some(EndReason::Requested);
        let (name, parent) = (Name::known(&created.name), created.parent_session_id);
        Some(Self { session, created, at, name, parent, to_end, ended })
    }
}

/// Parents before their children. One whose parent is not there comes as if it were a root.
fn in_order(mut found: BTreeMap<SessionId, Member>, report: &mut Report) -> Vec<Member> {
    let mut children: BTreeMap<SessionId, Vec<SessionId>> = BTreeMap::new();
    let mut next = BinaryHeap::new();
    let known: BTreeSet<SessionId> = found.keys().copied().collect();
    for (id, member) in &mut found {
        match member.parent {
            Some(parent) if known.contains(&parent) => {
                children.entry(parent).or_default().push(*id);
            }
            Some(_) => {
                lose_parent(member, "is not there", report);
                next.push(Reverse((member.at, *id)));
            }
            None => next.push(Reverse((member.at, *id))),
        }
    }
    let mut order = Vec::with_capacity(found.len());
    loop {
        while let Some(Reverse((_, id))) = next.pop() {
            for child in children.remove(&id).unwrap_or_default() {
                if let Some(member) = found.get(&child) {
                    next.push(Reverse((member.at, child)));
                }
            }
            order.extend(found.remove(&id));
        }
        // What is left has its own descendant as its parent.
        let Some((id, member)) = found.iter_mut().min_by_key(|(id, member)| (member.at, **id))
        else {
            return order;
        };
        if let Some(parent) = member.parent {
            children.entry(parent).or_default().retain(|child| child != id);
        }
        lose_parent(member, "is its own descendant", report);
        next.push(Reverse((member.at, *id)));
    }
}

fn lose_parent(member: &mut Member, why: &str, report: &mut Report) {
    let Some(parent) = member.parent.take() else { return };
    if member.is_live() {
        report.note(format!(
            "the parent of {:?} (agents/{}), session {parent}, {why}: it was ended",
            member.created.name, member.session.id
        ));
        member.to_end = Some(EndReason::Ancestor);
    }
}

/// No live agent has a parent that ended.
fn decide_ends(members: &mut [Member], report: &mut Report) {
    let mut live: BTreeSet<SessionId> = BTreeSet::new();
    for member in members {
        if member.is_live() && member.parent.is_some_and(|parent| !live.contains(&parent)) {
            report.note(format!(
                "the parent of {:?} (agents/{}) has ended: so was it",
                member.created.name, member.session.id
            ));
            member.to_end = Some(EndReason::Ancestor);
        }
        if member.is_live() {
            live.insert(member.session.id);
        }
    }
}

/// Names that hold here: allowed, and unique among the live ones beside them.
fn rename(members: &mut [Member], report: &mut Report) {
    let mut taken: BTreeSet<(Option<SessionId>, Name)> = BTreeSet::new();
    let mut names: BTreeMap<SessionId, Name> = BTreeMap::new();
    for member in members {
        let wanted = allowed(&member.created.name, "agent");
        let parent = member.parent.and_then(|parent| names.get(&parent));
        let is_free =
            |name: &Name| parent != Some(name) && !taken.contains(&(member.parent, name.clone()));
        let name = if member.is_live() { first_free(&wanted, is_free) } else { wanted };
        if name.as_str() != member.created.name {
            report.note(format!(
                "agent {:?} (agents/{}) is called {name} now: its name is taken or not allowed",
                member.created.name, member.session.id
            ));
        }
        if member.is_live() {
            taken.insert((member.parent, name.clone()));
        }
        names.insert(member.session.id, name.clone());
        member.name = name;
    }
}

/// A name as near to `text` as the rules of names let it be.
pub(super) fn allowed(text: &str, otherwise: &str) -> Name {
    if let Ok(name) = Name::parse(text) {
        return name;
    }
    let bad = |c: char| c == '/' || c.is_whitespace() || c.is_control();
    let clean: String = text.chars().map(|c| if bad(c) { '-' } else { c }).collect();
    let clean = cut(clean.trim_start_matches(['-', '.']), Name::MAX_BYTES);
    let parsed = Name::parse(clean).or_else(|_| {
        let name = format!("{otherwise}-{clean}");
        Name::parse(name.trim_end_matches('-'))
    });
    parsed.unwrap_or_else(|_| Name::known(otherwise))
}

/// The name, or else the first of `name-2`, `name-3`, … that is free.
pub(super) fn first_free(name: &Name, is_free: impl Fn(&Name) -> bool) -> Name {
    let numbered = (2_u64..).map(|number| {
        let suffix = format!("-{number}");
        let stem = cut(name.as_str(), Name::MAX_BYTES - suffix.len());
        Name::known(&format!("{stem}{suffix}"))
    });
    let mut all = std::iter::once(name.clone()).chain(numbered);
    all.find(|name| is_free(name)).unwrap_or_else(|| name.clone())
}

/// At most so many bytes of a text, in whole characters.
fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_refused_here_come_as_near_as_they_may() {
        let long = "ü".repeat(40);
        for (was, is) in [
            ("lead", "lead"),
            ("code reviewer", "code-reviewer"),
            ("a/b\tc", "a-b-c"),
            ("--x", "x"),
            ("..", "agent"),
            ("", "agent"),
            ("USER", "agent-USER"),
            (long.as_str(), &"ü".repeat(32)),
        ] {
            let name = allowed(was, "agent");
            assert_eq!(name.as_str(), is, "{was:?}");
            assert!(Name::parse(name.as_str()).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_taken_name_gets_a_number_and_stays_short_enough() {
        let name = Name::known(&"x".repeat(64));
        let taken = [name.clone(), first_free(&name, |other| *other != name)];
        assert_eq!(taken[1].as_str(), format!("{}-2", "x".repeat(62)));
        let third = first_free(&name, |other| !taken.contains(other));
        assert!(third.as_str().ends_with("x-3") && Name::parse(third.as_str()).is_ok());
    }
}
