//! The wire schema of Substrat: types, clients and servers generated from the `.proto` files
//! beside this crate, the descriptors for reflection and JSON, and the one convention on top of
//! them, the error details.

pub mod codec;
mod refusal;

pub use refusal::{DOMAIN, Refusal};

/// Package `substrat.v1`.
#[allow(
    clippy::all,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::too_many_lines,
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    reason = "generated"
)]
pub mod v1 {
    tonic::include_proto!("substrat.v1");
}

/// The schema as an encoded `google.protobuf.FileDescriptorSet`, imports included.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/substrat.v1.binpb"));

/// Largest message that either side accepts, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 4 << 20;
