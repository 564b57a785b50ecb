//! A provider that does as it is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use crate::model::{FailureClass, Json, Saved};
use crate::provider::{
    Capabilities, Failure, Health, Info, Instance, Objection, OutputKind, Prompt, Provider, Spec,
    TurnIo,
};

/// Does what its prompt says.
#[derive(Clone, Default)]
pub(super) struct Fake {
    attempts: Arc<AtomicUsize>,
    tool_socket: bool,
    /// Permits for backends to end by.
    may_close: Option<Arc<Semaphore>>,
}

impl Fake {
    /// One whose processes call tools on a socket.
    pub(super) fn with_socket() -> Self {
        Self { tool_socket: true, ..Self::default() }
    }

    /// One whose backends end when they may.
    pub(super) fn slow(may_close: Arc<Semaphore>) -> Self {
        Self { may_close: Some(may_close), ..Self::default() }
    }
}

impl Provider for Fake {
    fn info(&self) -> Info {
        Info {
            name: "fake".into(),
            kind: "fake",
            description: "does as it is told".into(),
            capabilities: Capabilities { tool_socket: self.tool_socket, ..Capabilities::default() },
            call_limit: None,
        }
    }
    fn examine(&self, _: bool) -> BoxFuture<'_, Health> {
        std::future::ready(Health::default()).boxed()
    }
    fn check(&self, _: &str, _: Option<&str>) -> Result<(), Objection> {
        Ok(())
    }
    fn open(&self, _: Spec) -> BoxFuture<'_, Result<Box<dyn Instance>, Failure>> {
        let instance: Box<dyn Instance> = Box::new(Fake { tool_socket: false, ..self.clone() });
        async { Ok(instance) }.boxed()
    }
}

impl Instance for Fake {
    fn turn<'a>(
        &'a mut self,
        prompt: Prompt,
        io: Arc<dyn TurnIo>,
    ) -> BoxFuture<'a, Result<crate::provider::Ended, Failure>> {
        async move {
            let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
            let text = prompt.messages[0].text.to_string();
            match text.as_str() {
                "panic" => panic!("told to"),
                "wait" => {
                    io.cancelled().cancelled().await;
                    return Ok(crate::provider::Ended::Cancelled);
                }
                "fail once" if attempt == 0 => {
                    let class = FailureClass::Transient;
                    return Err(Failure { class, message: "once".into(), retry_after: None });
                }
                "call" => {
                    let long = Json::of(&"x".repeat(9 << 20)).unwrap();
                    io.call_tool("refused", long).await.unwrap_err();
                    io.emit(OutputKind::Text, "refused");
                    io.call_tool("unknown", Json::null()).await.unwrap_err();
                    io.emit(OutputKind::Text, "called");
                    io.cancelled().cancelled().await;
                }
                "fail" => return Err(Failure::permanent("told to")),
                _ => {}
            }
            let response = format!("done: {text}");
            Ok(crate::provider::Ended::Completed { response, saved: Saved::Unchanged })
        }
        .boxed()
    }
    fn suspend(self: Box<Self>) -> BoxFuture<'static, Result<Saved, Failure>> {
        async { Ok(Saved::Unchanged) }.boxed()
    }
    fn close(self: Box<Self>, _: &'static str) -> BoxFuture<'static, ()> {
        async move {
            if let Some(may_close) = self.may_close {
                let _ = may_close.acquire().await;
            }
        }
        .boxed()
    }
}
