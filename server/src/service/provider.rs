//! ProviderService.

use futures_util::future::join_all;
use substrat_proto::v1;
use substrat_proto::v1::provider_service_server::ProviderService;
use tonic::{Code, Request, Response, Status};

use super::Api;
use super::daemon::problem;
use super::status::{Reason, refused, status};
use crate::model::FailureClass;
use crate::provider::registry::Entry;
use crate::provider::{Failure, Health};

impl Api {
    fn provider(&self, name: &str) -> Result<Entry, Status> {
        let providers = self.engine.providers();
        providers.get(name).ok_or_else(|| {
            let known: Vec<String> = providers.all().keys().map(ToString::to_string).collect();
            let message = format!("no provider {name:?}");
            let hint = format!("there are: {}", known.join(", "));
            status(Code::NotFound, Reason::ProviderUnknown, message, &hint)
        })
    }

    /// What is told of providers that were examined.
    async fn providers(&self, found: Vec<(Entry, Health)>) -> Result<Vec<v1::Provider>, Status> {
        let configuration = self.about.configuration.clone();
        self.look_for_sandbox().await;
        let confinement = self.confinement().await;
        let told = self.engine.read(move |state| {
            let told = found.into_iter().map(|(entry, health)| {
                let info = entry.provider.info();
                let (pool, slots) = (state.pool(&info.name), configuration.slots(&info.name));
                let facts = health.facts.into_iter();
                let sandbox = confinement.of_provider(&info.name);
                let problem = health.problem.unwrap_or_else(|| problem(&sandbox));
                v1::Provider {
                    name: info.name.to_string(),
                    description: info.description,
                    version: health.version,
                    available: problem.is_empty(),
                    problem,
                    capabilities: Some(v1::ProviderCapabilities {
                        keeps_history: info.capabilities.keeps_history,
                        native_tools: info.capabilities.native_tools,
                        tool_socket: info.capabilities.tool_socket,
                    }),
                    slot_limit: slots as u32,
                    slots_held: pool.held as u32,
                    slots_wanted: pool.queued as u32,
                    sandbox: Some(sandbox),
                    kind: info.kind.to_owned(),
                    fallback: entry.common.fallback,
                    facts: facts.map(|(name, value)| v1::ProviderFact { name, value }).collect(),
                }
            });
            told.collect()
        });
        told.await.map_err(|no| refused(&no))
    }
}

/// What a client is told of a failure of a provider that it asked for its models.
fn failed(provider: &str, failure: &Failure) -> Status {
    let check = format!("substratctl provider check {provider} says what it needs");
    let (code, hint) = match failure.class {
        FailureClass::Auth => {
            (Code::FailedPrecondition, "give it a key that is good, as its page says".to_owned())
        }
        FailureClass::Permanent => {
            (Code::FailedPrecondition, "its page says which models it takes".to_owned())
        }
        FailureClass::Killed => {
            let hint = format!("its program ended before it could be asked; {check}");
            (Code::FailedPrecondition, hint)
        }
        class if class.may_pass() => (Code::Unavailable, format!("try again later; {check}")),
        _ => (Code::FailedPrecondition, check),
    };
    status(code, Reason::ProviderFailed, failure.message.clone(), &hint)
}

#[tonic::async_trait]
impl ProviderService for Api {
    async fn list_providers(
        &self,
        _: Request<v1::ListProvidersRequest>,
    ) -> Result<Response<v1::ListProvidersResponse>, Status> {
        let all = self.engine.providers().all();
        let found = all.values().map(|entry| async {
            let health = entry.provider.examine(false).await;
            (entry.clone(), health)
        });
        let providers = self.providers(join_all(found).await).await?;
        Ok(Response::new(v1::ListProvidersResponse { providers }))
    }

    async fn check_provider(
        &self,
        request: Request<v1::CheckProviderRequest>,
    ) -> Result<Response<v1::CheckProviderResponse>, Status> {
        let entry = self.provider(&request.into_inner().provider)?;
        let health = {
            // It is never closed.
            let _turn = self.asking_turns.acquire().await;
            entry.provider.examine(true).await
        };
        let provider = self.providers(vec![(entry, health)]).await?.pop();
        Ok(Response::new(v1::CheckProviderResponse { provider }))
    }

    async fn list_models(
        &self,
        request: Request<v1::ListModelsRequest>,
    ) -> Result<Response<v1::ListModelsResponse>, Status> {
        let name = request.into_inner().provider;
        let entry = self.provider(&name)?;
        let models = {
            // It is never closed.
            let _turn = self.asking_turns.acquire().await;
            entry.provider.models().await
        };
        let models = models.map_err(|failure| failed(&name, &failure))?;
        let models = models.into_iter().map(|model| v1::Model {
            id: model.id,
            label: model.label,
            context_tokens: model.context_tokens,
        });
        Ok(Response::new(v1::ListModelsResponse { models: models.collect() }))
    }
}
