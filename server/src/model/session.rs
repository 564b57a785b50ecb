//! Sessions: the lifecycle of one provider instance for one agent.
//!
//! ```text
//! created ──opened──► active ──suspending──► suspending
//!                      ▲  │                      │
//!              restored│  │ crash, restart       │ suspend.result
//!                      │  ▼                      │
//!                    suspended ◄─────────────────┘
//!
//!           any ──agent.terminated──► terminated
//! ```

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Blob, SessionId, Timestamp};

/// Where a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionState {
    /// Never opened yet.
    Created,
    /// Its provider instance is live.
    Active,
    /// Its provider instance is being asked for its state.
    Suspending,
    /// It has no provider instance and is resumed when needed.
    Suspended,
    /// Ended for good.
    Terminated,
}

/// The session of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Identity.
    pub id: SessionId,
    /// Where it stands.
    pub state: SessionState,
    /// Name of the provider.
    pub provider: Arc<str>,
    /// Model asked of the provider; none for its default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was last suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended_at: Option<Timestamp>,
    /// What the provider last gave to resume from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<Blob>,
    /// Sequence of its last use: what least recently used means.
    pub used: u64,
    /// Events in its log.
    pub events: u64,
    /// Sequence of the first event in its log.
    pub first_seq: u64,
    /// Sequence of the last event in its log.
    pub last_seq: u64,
    /// Whether its live instance was opened with instructions that have changed since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
}

impl Session {
    /// A session as `session.created` makes it.
    pub fn new(id: SessionId, provider: Arc<str>, model: Option<Arc<str>>, at: Timestamp) -> Self {
        Self {
            id,
            state: SessionState::Created,
            provider,
            model,
            created_at: at,
            suspended_at: None,
            saved: None,
            used: 0,
            events: 0,
            first_seq: 0,
            last_seq: 0,
            stale: false,
        }
    }

    /// What stands in `session.json`.
    pub fn record(&self) -> SessionRecord {
        SessionRecord {
            id: self.id,
            state: self.state,
            provider_name: self.provider.clone(),
            model: self.model.clone(),
            created_at: self.created_at,
            suspended_at: self.suspended_at,
            provider_state: self.saved.clone().unwrap_or_default(),
        }
    }
}

fn or_empty<S: Serializer>(text: &Option<Arc<str>>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text.as_deref().unwrap_or_default())
}

fn non_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<str>>, D::Error> {
    let text = Arc::<str>::deserialize(deserializer)?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// The contents of `session.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// Identity.
    pub id: SessionId,
    /// Where it stands.
    pub state: SessionState,
    /// Name of the provider.
    pub provider_name: Arc<str>,
    /// Model; empty for the provider's default.
    #[serde(serialize_with = "or_empty", deserialize_with = "non_empty")]
    pub model: Option<Arc<str>>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was last suspended.
    pub suspended_at: Option<Timestamp>,
    /// What the provider is resumed from, base64.
    pub provider_state: Blob,
}
