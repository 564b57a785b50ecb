//! Where workspaces are found: by name, by who works in them, by what depends on them. Derived
//! from the agents and the workspaces.

use rustc_hash::FxHashMap;

use super::{Agent, AgentId, Name, State, Workspace, WorkspaceId};

/// The indexes. Lists are in the order of creation.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Directory {
    by_name: FxHashMap<Name, WorkspaceId>,
    /// Live agents that work in a workspace.
    users: FxHashMap<WorkspaceId, Vec<AgentId>>,
    /// Views of a workspace.
    views: FxHashMap<WorkspaceId, Vec<WorkspaceId>>,
    /// Workspaces whose folders lie in that of another one.
    nested: FxHashMap<WorkspaceId, Vec<WorkspaceId>>,
    /// Workspaces that an agent created.
    owned: FxHashMap<AgentId, Vec<WorkspaceId>>,
}

fn forget<K: std::hash::Hash + Eq, V: PartialEq>(
    lists: &mut FxHashMap<K, Vec<V>>,
    key: &K,
    value: &V,
) {
    if let Some(list) = lists.get_mut(key) {
        list.retain(|other| other != value);
        if list.is_empty() {
            lists.remove(key);
        }
    }
}

impl Directory {
    /// A live agent works where it says.
    pub(super) fn enter(&mut self, agent: &Agent) {
        if let Some(workspace) = agent.workspace {
            self.users.entry(workspace).or_default().push(agent.id);
        }
    }

    /// It does not any more.
    pub(super) fn leave(&mut self, agent: AgentId, workspace: Option<WorkspaceId>) {
        if let Some(workspace) = workspace {
            forget(&mut self.users, &workspace, &agent);
        }
    }
}

impl State {
    pub(super) fn insert_workspace(&mut self, workspace: Workspace) {
        let id = workspace.id;
        let directory = &mut self.directory;
        directory.by_name.insert(workspace.name.clone(), id);
        if let Some(view) = &workspace.view {
            directory.views.entry(view.of).or_default().push(id);
        }
        if let Some(parent) = workspace.parent {
            directory.nested.entry(parent).or_default().push(id);
        }
        if let Some(owner) = workspace.owner {
            directory.owned.entry(owner).or_default().push(id);
        }
        self.workspaces.insert(id, workspace);
    }

    pub(super) fn remove_workspace(&mut self, id: WorkspaceId) {
        let Some(workspace) = self.workspaces.shift_remove(&id) else { return };
        let directory = &mut self.directory;
        directory.by_name.remove(&workspace.name);
        if let Some(view) = &workspace.view {
            forget(&mut directory.views, &view.of, &id);
        }
        if let Some(parent) = workspace.parent {
            forget(&mut directory.nested, &parent, &id);
        }
        if let Some(owner) = workspace.owner {
            forget(&mut directory.owned, &owner, &id);
        }
    }

    /// Workspaces in the order of their creation.
    pub fn workspaces(&self) -> impl ExactSizeIterator<Item = &Workspace> {
        self.workspaces.values()
    }

    /// A workspace.
    pub fn workspace(&self, id: WorkspaceId) -> Option<&Workspace> {
        self.workspaces.get(&id)
    }

    /// The workspace of this name.
    pub fn workspace_named(&self, name: &str) -> Option<&Workspace> {
        self.workspace(*self.directory.by_name.get(name)?)
    }

    /// Live agents that work in a workspace.
    pub fn users_of(&self, id: WorkspaceId) -> impl ExactSizeIterator<Item = &Agent> {
        let users = self.directory.users.get(&id).map_or(&[][..], Vec::as_slice);
        let users: Vec<&Agent> = users.iter().filter_map(|id| self.live_agent(*id)).collect();
        users.into_iter()
    }

    /// Views of a workspace, not those of its views.
    pub fn views_of(&self, id: WorkspaceId) -> impl DoubleEndedIterator<Item = &Workspace> {
        self.listed(self.directory.views.get(&id))
    }

    /// Workspaces whose folders lie in that of this one, not those in theirs.
    pub fn nested_in(&self, id: WorkspaceId) -> impl DoubleEndedIterator<Item = &Workspace> {
        self.listed(self.directory.nested.get(&id))
    }

    /// Workspaces that an agent created.
    pub fn owned_by(&self, agent: AgentId) -> impl DoubleEndedIterator<Item = &Workspace> {
        self.listed(self.directory.owned.get(&agent))
    }

    fn listed<'a>(
        &'a self,
        ids: Option<&'a Vec<WorkspaceId>>,
    ) -> impl DoubleEndedIterator<Item = &'a Workspace> {
        ids.into_iter().flatten().filter_map(|id| self.workspace(*id))
    }

    /// A workspace with its views and theirs, each after its own views.
    pub fn with_views<'a>(&'a self, workspace: &'a Workspace) -> Vec<&'a Workspace> {
        let mut found = vec![workspace];
        let mut next = 0;
        while let Some(one) = found.get(next) {
            found.extend(self.views_of(one.id).collect::<Vec<_>>());
            next += 1;
        }
        found.reverse();
        found
    }
}
