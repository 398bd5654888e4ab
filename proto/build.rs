// SPDX-License-Identifier: Apache-2.0
//! Compiles the two interfaces with protox (no protoc needed). Writes a redacting `Debug` for every message with a
//! field marked `csi_secret` or with a volume context, so that `tracing::debug!(?request)` never prints a secret. The
//! kubelet may add tokens of the pod's service account to a volume context.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use protox::prost_reflect::{DescriptorPool, ExtensionDescriptor, MessageDescriptor};

const FILES: [&str; 2] = ["csi.proto", "pluginregistration.proto"];
const SECRET_OPTION: &str = "csi.v1.csi_secret";
/// Fields of which `crate::context::RedactedContext` prints the values of known keys only.
const CONTEXT: &str = "volume_context";

fn main() -> Result<(), Box<dyn Error>> {
    for file in FILES {
        println!("cargo::rerun-if-changed={file}");
    }
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: run this by cargo")?);

    let mut compiler = protox::Compiler::new(["."])?;
    compiler
        .include_imports(true)
        .include_source_info(true)
        .open_files(FILES)?;
    let pool = compiler.descriptor_pool();
    let secret = pool
        .get_extension_by_name(SECRET_OPTION)
        .ok_or_else(|| format!("{SECRET_OPTION} is not defined"))?;
    let secretive = messages_with_secrets(&pool, &secret);
    if secretive.is_empty() {
        return Err(format!("no field of {FILES:?} is marked {SECRET_OPTION}: redaction would be off").into());
    }

    fs::write(out_dir.join("redacted.rs"), redacting_debug(&secretive, &secret)?)?;
    // Protox writes the set, because prost's own types would lose the options of the interface, including
    // `csi_secret`.
    fs::write(out_dir.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;
    generate(&out_dir, &secretive, compiler.file_descriptor_set())
}

fn messages_with_secrets(pool: &DescriptorPool, secret: &ExtensionDescriptor) -> Vec<MessageDescriptor> {
    pool.all_messages()
        .filter(|message| {
            message
                .fields()
                .any(|field| is_secret(&field, secret) || field.name() == CONTEXT)
        })
        .collect()
}

fn is_secret(field: &protox::prost_reflect::FieldDescriptor, secret: &ExtensionDescriptor) -> bool {
    field.options().get_extension(secret).as_bool() == Some(true)
}

/// The source of one `Debug` per message. It also omits the map keys of a secret field, which reveal the purpose of
/// the secret.
fn redacting_debug(messages: &[MessageDescriptor], secret: &ExtensionDescriptor) -> Result<String, Box<dyn Error>> {
    let mut source = String::new();
    for message in messages {
        let name = message.name();
        let module = message.parent_message().map(|parent| module(parent.name()) + "::");
        let module = module.unwrap_or_default();
        writeln!(source, "impl ::core::fmt::Debug for {module}{name} {{")?;
        writeln!(
            source,
            "    fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {{"
        )?;
        writeln!(source, "        f.debug_struct(\"{name}\")")?;
        for field in message.fields() {
            let field_name = field.name();
            if is_secret(&field, secret) {
                writeln!(
                    source,
                    "            .field(\"{field_name}\", &::core::format_args!(\"<redacted>\"))"
                )?;
            } else if field_name == CONTEXT {
                writeln!(
                    source,
                    "            .field(\"{field_name}\", &crate::context::RedactedContext(&self.{field_name}))"
                )?;
            } else {
                writeln!(source, "            .field(\"{field_name}\", &self.{field_name})")?;
            }
        }
        writeln!(source, "            .finish()\n    }}\n}}\n")?;
    }
    Ok(source)
}

/// The module of the messages that are nested in a message.
fn module(message: &str) -> String {
    let mut name = String::new();
    for letter in message.chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

fn generate(
    out_dir: &Path,
    secretive: &[MessageDescriptor],
    descriptors: protox::prost_reflect::prost_types::FileDescriptorSet,
) -> Result<(), Box<dyn Error>> {
    tonic_prost_build::configure()
        .out_dir(out_dir)
        // Ordered maps, so that logs, comparisons and encodings are deterministic.
        .btree_map(".")
        .skip_debug(secretive.iter().map(MessageDescriptor::full_name))
        // An RPC that a service does not implement returns UNIMPLEMENTED.
        .generate_default_stubs(true)
        .compile_fds(descriptors)?;
    Ok(())
}
