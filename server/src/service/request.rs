//! What requests have in common: idempotency keys, pages, references.

use prost::Message;
use sha2::{Digest, Sha256};
use tonic::{Code, Status};

use super::status::{Reason, invalid, status};
use crate::model::Request;

/// Longest idempotency key, in bytes.
const MAX_KEY: usize = 128;

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

/// A page and the token of the next one, from items that know their places.
pub(super) fn page<T>(items: impl Iterator<Item = (u64, T)>, size: usize) -> (Vec<T>, String) {
    let mut taken: Vec<(u64, T)> = items.take(size + 1).collect();
    let more = taken.len() > size;
    taken.truncate(size);
    let next = taken.last().filter(|_| more).map(|(place, _)| place.to_string());
    (taken.into_iter().map(|(_, item)| item).collect(), next.unwrap_or_default())
}

/// Text of a client, short enough for an error.
pub(super) fn clip(text: &str) -> String {
    text.chars().take(80).collect()
}

/// None for empty text.
pub(super) fn given(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}
