//! What requests have in common: idempotency keys, pages, references.

use prost::Message;
use sha2::{Digest, Sha256};
use tonic::{Code, Status};

use super::status::{Reason, invalid, status};
use crate::model::{Request, TurnId};

/// Longest idempotency key, in bytes.
const MAX_KEY: usize = 128;
/// Most bytes of a page: half of what a client takes that sets no limit of its own.
const MAX_PAGE_BYTES: usize = 2 << 20;

/// The idempotency key of a mutation; none if the client gave none.
pub(super) fn key(
    method: &str,
    id: &str,
    message: &impl Message,
) -> Result<Option<Request>, Status> {
    if id.is_empty() {
        return Ok(None);
    }
    if id.len() > MAX_KEY || id.chars().any(char::is_control) {
        let message = "the request id is longer than 128 bytes or contains control characters";
        let hint = "use a UUID";
        return Err(status(Code::InvalidArgument, Reason::RequestIdInvalid, message, hint));
    }
    let mut digest = Sha256::new();
    digest.update(method.as_bytes());
    digest.update([0]);
    digest.update(message.encode_to_vec());
    let digest = digest.finalize();
    let fingerprint = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Some(Request { id: id.to_owned(), fingerprint }))
}

/// The size of a page.
pub(super) fn page_size(asked: i32, default: usize) -> Result<usize, Status> {
    match asked {
        0 => Ok(default),
        1..=1000 => Ok(asked as usize),
        _ => Err(invalid("page_size must be between 0 and 1,000")),
    }
}

/// The place that a page token stands for; 0 for none.
pub(super) fn page_token(token: &str) -> Result<u64, Status> {
    if token.is_empty() {
        return Ok(0);
    }
    token.parse().map_err(|_| {
        let message = format!("{:?} is not a page token of this daemon", clip(token));
        let hint = "give next_page_token of the page before, or nothing";
        status(Code::InvalidArgument, Reason::PageTokenInvalid, message, hint)
    })
}

/// A page and the token of the next one, from items that know their places. It ends before it
/// gets too large for clients with the usual limits, but holds one item at least.
pub(super) fn page<T: Message>(
    items: impl Iterator<Item = (u64, T)>,
    size: usize,
) -> (Vec<T>, String) {
    let (mut taken, mut bytes) = (Vec::new(), 0);
    let mut last = 0;
    for (place, item) in items {
        bytes += item.encoded_len();
        if taken.len() == size || (bytes > MAX_PAGE_BYTES && !taken.is_empty()) {
            return (taken, last.to_string());
        }
        last = place;
        taken.push(item);
    }
    (taken, String::new())
}

/// The id of a turn.
pub(super) fn turn_id(text: &str) -> Result<TurnId, Status> {
    text.parse().map_err(|_| {
        let message = format!("{:?} is not the id of a turn", clip(text));
        let hint = "it is exec- and 16 hex digits; list the turns of the agent to see them";
        status(Code::InvalidArgument, Reason::FieldInvalid, message, hint)
    })
}

/// Text of a client, short enough for an error.
pub(super) fn clip(text: &str) -> String {
    text.chars().take(80).collect()
}

/// None for empty text.
pub(super) fn given(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use substrat_proto::v1::SendMessageRequest;

    use super::*;

    fn message(text: &str) -> SendMessageRequest {
        SendMessageRequest { text: text.to_owned(), ..SendMessageRequest::default() }
    }

    #[test]
    fn a_key_stands_for_one_method_and_one_message() {
        let key = |method, id, text| key(method, id, &message(text)).unwrap();
        assert_eq!(key("Send", "", "x"), None);
        let first = key("Send", "id", "x");
        assert_eq!(first.as_ref().map(|request| &*request.id), Some("id"));
        assert_eq!(key("Send", "id", "x"), first);
        for other in [key("Send", "id", "y"), key("Other", "id", "x"), key("Send\0", "id", "x")] {
            assert_ne!(other.map(|one| one.fingerprint), first.clone().map(|one| one.fingerprint));
        }
    }

    #[test]
    fn a_key_that_breaks_the_rules_is_refused() {
        assert!(key("Send", &"x".repeat(MAX_KEY), &message("")).is_ok());
        for bad in [&*"x".repeat(MAX_KEY + 1), &"ü".repeat(MAX_KEY / 2 + 1), "a\nb", "\0"] {
            let refused = key("Send", bad, &message("")).unwrap_err();
            let refused = substrat_proto::Refusal::from(&refused);
            assert_eq!(refused.reason, "REQUEST_ID_INVALID", "{bad:?}");
        }
    }

    #[test]
    fn pages_follow_each_other_to_the_end() {
        let items = || (1..=7u64).map(|place| (place, message(&format!("item {place}"))));
        let mut seen = Vec::new();
        let mut token = String::new();
        loop {
            let after = page_token(&token).unwrap();
            let (found, next) = page(items().filter(|(place, _)| *place > after), 3);
            assert!(found.len() <= 3);
            seen.extend(found);
            if next.is_empty() {
                break;
            }
            token = next;
        }
        assert_eq!(seen, items().map(|(_, item)| item).collect::<Vec<_>>());
        let (all, next) = page(items(), 7);
        assert_eq!((all.len(), &*next), (7, ""), "a full last page has none after it");
    }

    #[test]
    fn sizes_and_tokens_that_make_no_sense_are_refused() {
        assert_eq!(page_size(0, 50).unwrap(), 50);
        assert_eq!(page_size(1000, 50).unwrap(), 1000);
        for bad in [-1, 1001, i32::MIN, i32::MAX] {
            assert_eq!(page_size(bad, 50).unwrap_err().code(), Code::InvalidArgument);
        }
        for bad in ["x", "-1", "1.5", "99999999999999999999999", " 1"] {
            let refused = substrat_proto::Refusal::from(&page_token(bad).unwrap_err());
            assert_eq!(refused.reason, "PAGE_TOKEN_INVALID", "{bad:?}");
        }
        let long = page_token(&"ü".repeat(1000)).unwrap_err();
        assert!(long.message().len() < 300, "{}", long.message());
    }

    #[test]
    fn a_page_ends_before_it_is_too_large_for_a_client() {
        let large = "x".repeat(MAX_PAGE_BYTES / 2);
        let items = || (1..=5).map(|place| (place, message(&large)));
        let (found, token) = page(items(), 100);
        assert_eq!((found.len(), token.as_str()), (1, "1"));
        let (found, token) = page((1..=5).map(|place| (place, message("x"))), 3);
        assert_eq!((found.len(), token.as_str()), (3, "3"));
        let (found, token) = page((1..=5).map(|place| (place, message("x"))), 5);
        assert_eq!((found.len(), token.as_str()), (5, ""));
    }
}
