//! The core on its own: scenarios, and a state machine of random commands.

mod activity;
mod backends;
mod budgets;
mod calls;
mod cancel;
mod desks;
mod git_file;
mod ledger;
mod lifecycle;
mod machine;
mod mail;
mod races;
mod routing;
mod scenarios;
mod team;
mod workspaces;
mod world;
