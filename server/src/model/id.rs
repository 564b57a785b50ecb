//! Identities. On disk and in the logs they are hex strings.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

use super::IdSource;

/// Text that is no identity of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an id: {0:?}")]
pub struct InvalidId(String);

macro_rules! uuids {
    ($($(#[$doc:meta])* $name:ident)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// A new identity.
            pub fn fresh(ids: &mut dyn IdSource) -> Self {
                Self(uuid::Builder::from_random_bytes(ids.next_u128().to_be_bytes()).into_uuid())
            }

            /// The identity with these bits.
            pub const fn from_u128(bits: u128) -> Self {
                Self(Uuid::from_u128(bits))
            }

            /// Its bits.
            pub const fn as_u128(self) -> u128 {
                self.0.as_u128()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_simple().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_simple().fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                text.parse().map(Self).map_err(|_| InvalidId(text.to_owned()))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.0.as_simple().encode_lower(&mut [0; 32]))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Text::<Self>::new())
            }
        }
    )+};
}

uuids! {
    /// An agent.
    AgentId
    /// A session; names its folder on disk.
    SessionId
    /// A message.
    MessageId
    /// A workspace.
    WorkspaceId
}

macro_rules! prefixed {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// The identity with these bits.
            pub const fn from_u64(bits: u64) -> Self {
                Self(bits)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "-{:016x}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                text.strip_prefix(concat!($prefix, "-"))
                    .filter(|hex| hex.len() == 16)
                    .and_then(|hex| u64::from_str_radix(hex, 16).ok())
                    .map(Self)
                    .ok_or_else(|| InvalidId(text.to_owned()))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Text::<Self>::new())
            }
        }
    )+};
}

prefixed! {
    /// A turn, `exec-` and 16 hex digits: the execution id of the execution record.
    TurnId = "exec"
    /// A tool call within a turn, `call-` and 16 hex digits.
    CallId = "call"
    /// A reminder, `reminder-` and 16 hex digits.
    ReminderId = "reminder"
    /// A subscription, `subscription-` and 16 hex digits.
    SubscriptionId = "subscription"
    /// A multicast, `multicast-` and 16 hex digits.
    MulticastId = "multicast"
    /// A question of a backend, `permission-` and 16 hex digits.
    PermissionId = "permission"
}

macro_rules! fresh {
    ($($name:ident)+) => {$(
        impl $name {
            /// A new identity.
            pub fn fresh(ids: &mut dyn IdSource) -> Self {
                let bits = ids.next_u128();
                Self((bits >> 64) as u64 ^ bits as u64)
            }
        }
    )+};
}

fresh! { CallId ReminderId SubscriptionId MulticastId PermissionId }

/// Bits of a turn's id that its sequence makes; those above are the first ones of its session's.
const SEQ_BITS: u32 = 48;
const SEQ_MASK: u64 = (1 << SEQ_BITS) - 1;
/// An odd number and its inverse, so that multiplying by one undoes the other.
const SPREAD: u64 = 0x5851_f42d_4c95;
const GATHER: u64 = inverse(SPREAD);

/// The inverse of an odd number modulo 2^64, and so modulo any smaller power of two.
const fn inverse(odd: u64) -> u64 {
    let mut found = odd;
    let mut round = 0;
    // Newton's iteration: each round doubles the bits that are right, from 3.
    while round < 5 {
        found = found.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(found)));
        round += 1;
    }
    found
}

/// Turns are found by their ids alone: an id says where its `turn.start` stands, mixed so that
/// consecutive turns do not look alike. Older versions drew ids at random; what is read out of
/// those is nonsense, and leads to no `turn.start` with that id.
impl TurnId {
    /// The turn whose `turn.start` has this sequence in the log of this session.
    pub const fn starting_at(session: SessionId, seq: u64) -> Self {
        let mut bits = seq & SEQ_MASK;
        bits = bits.wrapping_mul(SPREAD) & SEQ_MASK;
        bits ^= bits >> (SEQ_BITS / 2);
        bits = bits.wrapping_mul(SPREAD) & SEQ_MASK;
        bits ^= bits >> (SEQ_BITS / 2);
        Self(Self::mark(session) | bits)
    }

    /// The sequence of its `turn.start`.
    pub const fn seq(self) -> u64 {
        let mut bits = self.0 & SEQ_MASK;
        bits ^= bits >> (SEQ_BITS / 2);
        bits = bits.wrapping_mul(GATHER) & SEQ_MASK;
        bits ^= bits >> (SEQ_BITS / 2);
        bits.wrapping_mul(GATHER) & SEQ_MASK
    }

    /// Whether it may be of this session.
    pub const fn may_be_of(self, session: SessionId) -> bool {
        Self::mark(session) == self.0 & !SEQ_MASK
    }

    const fn mark(session: SessionId) -> u64 {
        (session.as_u128() >> 64) as u64 & !SEQ_MASK
    }
}

/// Reads a value from text without an allocation.
pub(super) struct Text<T>(std::marker::PhantomData<T>);

impl<T> Text<T> {
    pub(super) fn new() -> Self {
        Self(std::marker::PhantomData)
    }
}

impl<T: FromStr<Err: fmt::Display>> de::Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_back_what_they_print() {
        let session = SessionId::from_u128(0x0efe_0000_0000_0000_0000_0000_0000_0001);
        assert_eq!(session.to_string(), "0efe0000000000000000000000000001");
        assert_eq!(session.to_string().parse(), Ok(session));
        let turn = TurnId::from_u64(0xa1b2);
        assert_eq!(turn.to_string(), "exec-000000000000a1b2");
        assert_eq!(turn.to_string().parse(), Ok(turn));
        assert!("exec-12".parse::<TurnId>().is_err());
        assert!("nonsense".parse::<SessionId>().is_err());
    }

    #[test]
    fn turns_that_follow_each_other_do_not_look_alike() {
        let session = SessionId::from_u128(0x0efe << 112);
        let ids: Vec<String> =
            (41..44).map(|seq| TurnId::starting_at(session, seq).to_string()).collect();
        assert!(ids.iter().all(|id| id.starts_with("exec-0efe")), "{ids:?}");
        assert!(ids.windows(2).all(|pair| pair[0][9..13] != pair[1][9..13]), "{ids:?}");
    }

    proptest::proptest! {
        #[test]
        fn a_turn_id_says_where_its_turn_starts(session: u128, other: u128, seq in 0..=SEQ_MASK) {
            let (session, other) = (SessionId::from_u128(session), SessionId::from_u128(other));
            let turn = TurnId::starting_at(session, seq);
            proptest::prop_assert_eq!(turn.seq(), seq);
            proptest::prop_assert!(turn.may_be_of(session));
            let alike = session.as_u128() >> 112 == other.as_u128() >> 112;
            proptest::prop_assert_eq!(turn.may_be_of(other), alike);
            proptest::prop_assert_eq!(turn.to_string().parse(), Ok(turn));
        }

        #[test]
        fn every_id_is_that_of_one_place(bits: u64) {
            let (id, session) = (TurnId::from_u64(bits), SessionId::from_u128(u128::from(bits) << 64));
            proptest::prop_assert_eq!(TurnId::starting_at(session, id.seq()), id);
        }
    }
}
