//! Messages that a running turn is to take in, and those that it took.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc::UnboundedReceiver;

use crate::provider::Addition;

/// The additions to a turn, over all attempts at it.
pub(super) struct Additions {
    queue: tokio::sync::Mutex<UnboundedReceiver<Addition>>,
    taken: Mutex<Vec<Arc<str>>>,
}

impl Additions {
    pub(super) fn new(queue: UnboundedReceiver<Addition>) -> Self {
        Self { queue: tokio::sync::Mutex::new(queue), taken: Mutex::default() }
    }

    fn taken(&self) -> MutexGuard<'_, Vec<Arc<str>>> {
        // Nothing under this lock can be left half done by a panic.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next one. Who stops waiting has taken none.
    pub(super) async fn next(&self) -> Addition {
        match self.queue.lock().await.recv().await {
            Some(addition) => addition,
            None => std::future::pending().await,
        }
    }

    /// One was taken in.
    pub(super) fn take(&self, text: Arc<str>) {
        self.taken().push(text);
    }

    /// A prompt with what an attempt at it took in: the next attempt knows nothing of that.
    pub(super) fn after(&self, prompt: Arc<str>) -> Arc<str> {
        let taken = std::mem::take(&mut *self.taken());
        if taken.is_empty() {
            return prompt;
        }
        let parts: Vec<&str> =
            std::iter::once(&*prompt).chain(taken.iter().map(|text| &**text)).collect();
        parts.join("\n\n").into()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::model::MessageId;

    #[tokio::test]
    async fn what_an_attempt_took_in_the_next_one_is_prompted_with() {
        let (sender, queue) = unbounded_channel();
        let additions = Additions::new(queue);
        assert!(additions.next().now_or_never().is_none());
        let one = Addition { message: MessageId::from_u128(1), text: "more".into() };
        sender.send(one.clone()).unwrap();
        assert_eq!(additions.next().await, one);
        assert_eq!(&*additions.after("first".into()), "first");
        additions.take(one.text);
        assert_eq!(&*additions.after("first".into()), "first\n\nmore");
        assert_eq!(&*additions.after("again".into()), "again");
        drop(sender);
        assert!(additions.next().now_or_never().is_none());
    }
}
