//! Compiles the schema with a compiler written in Rust, so that no `protoc` is needed.

#![allow(clippy::disallowed_methods, reason = "a build script writes where cargo says")]

use std::path::PathBuf;

use protox::prost::Message;

type Error = Box<dyn std::error::Error>;

/// Every file of the package; a new noun is a new line.
const NOUNS: [&str; 11] = [
    "agent",
    "attach",
    "daemon",
    "event",
    "exec",
    "provider",
    "sandbox",
    "session",
    "tool",
    "turn",
    "workspace",
];

fn main() -> Result<(), Error> {
    let files: Vec<String> = NOUNS
        .iter()
        .flat_map(|noun| [format!("{noun}.proto"), format!("{noun}_service.proto")])
        .filter(|file| PathBuf::from("substrat/v1").join(file).exists())
        .map(|file| format!("substrat/v1/{file}"))
        .collect();
    println!("cargo:rerun-if-changed=substrat");

    let descriptors = protox::compile(&files, ["."])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("substrat.v1.binpb"), descriptors.encode_to_vec())?;
    let mut config = prost_build::Config::new();
    // Maps in key order, so that equal messages have equal bytes.
    config.skip_protoc_run().enable_type_names().btree_map(["."]);
    tonic_prost_build::configure()
        .build_transport(true)
        .codec_path("crate::codec::StrictCodec")
        .compile_fds_with_config(descriptors, config)?;
    Ok(())
}
