//! `substratctl config`: the daemon's configuration.

use clap::Subcommand;
use substrat_proto::v1;

use super::{Context, daemon};
use crate::error::Error;
use crate::output::{Table, line, note};

/// The daemon's configuration.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show the effective values, and where each comes from
    Show,
    /// Show the path of the configuration file
    Path,
}

pub(crate) async fn run(context: &Context, command: Command) -> Result<(), Error> {
    let place = &context.place;
    let config = match place.try_connect().await {
        Ok(client) => client.daemon().get_config(v1::GetConfigRequest {}).await?.into_inner(),
        Err(_) => {
            note("the daemon does not run: this is what it would start with");
            daemon::offline_config(&place.home)?
        }
    };
    match command {
        Command::Path => {
            let config = v1::GetConfigResponse { values: Vec::new(), ..config };
            context.output.response(&config, |config| line(&config.path))
        }
        Command::Show => context.output.response(&config, |config| {
            let mut table = Table::new(&["KEY", "VALUE", "SOURCE", "WHAT IT DOES"]);
            for value in &config.values {
                table.row(vec![
                    value.key.clone(),
                    value.value.clone(),
                    value.source.clone(),
                    value.description.clone(),
                ]);
            }
            table.print(context.output, "no settings");
        }),
    }
}
