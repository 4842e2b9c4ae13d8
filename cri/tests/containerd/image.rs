//! A generated image with one program that does nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The image's name.
pub const NAME: &str = "eno.test/pause:1";

/// `again: pause(); goto again;` in machine code of x86-64 Linux.
const CODE: [u8; 9] = [
    0xb8, 0x22, 0x00, 0x00, 0x00, // mov eax, 34
    0x0f, 0x05, // syscall
    0xeb, 0xf7, // jmp -9
];

/// A static ELF executable: its header, one loaded segment, the code.
fn program() -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    const HEADERS: u16 = 64 + 56;
    let size = u64::from(HEADERS) + CODE.len() as u64;
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let mut put = |bytes: &[u8]| elf.extend_from_slice(bytes);
    put(&2_u16.to_le_bytes()); // an executable
    put(&62_u16.to_le_bytes()); // x86-64
    put(&1_u32.to_le_bytes());
    put(&(BASE + u64::from(HEADERS)).to_le_bytes()); // entry
    put(&64_u64.to_le_bytes()); // program headers
    put(&0_u64.to_le_bytes()); // no section headers
    put(&0_u32.to_le_bytes());
    for half in [64_u16, 56, 1, 0, 0, 0] {
        put(&half.to_le_bytes());
    }
    put(&1_u32.to_le_bytes()); // to be loaded
    put(&5_u32.to_le_bytes()); // readable, executable
    for word in [0, BASE, BASE, size, size, 0x1000] {
        put(&word.to_le_bytes());
    }
    put(&CODE);
    elf
}

struct Layout(PathBuf);

impl Layout {
    /// Adds a blob; returns its descriptor.
    fn add(&self, media_type: &str, bytes: &[u8]) -> Value {
        let digest = Sha256::digest(bytes).iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
        fs::write(self.0.join("blobs/sha256").join(&digest), bytes).expect("a blob");
        json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": bytes.len() })
    }
}

fn tar(folder: &Path, archive: &Path) {
    let status = Command::new("tar").arg("-cf").arg(archive).arg("-C").arg(folder).arg(".").status();
    assert!(status.expect("tar").success());
}

/// Writes the image as an OCI archive below `folder`; returns its path.
pub fn archive(folder: &Path) -> PathBuf {
    assert_eq!(std::env::consts::ARCH, "x86_64", "the image's program is for x86-64");
    let root = folder.join("root");
    fs::create_dir_all(&root).expect("a folder");
    fs::write(root.join("pause"), program()).expect("the program");
    fs::set_permissions(root.join("pause"), fs::Permissions::from_mode(0o755)).expect("its mode");
    let layer = folder.join("layer.tar");
    tar(&root, &layer);

    let layout = Layout(folder.join("layout"));
    fs::create_dir_all(layout.0.join("blobs/sha256")).expect("a folder");
    let bytes = fs::read(&layer).expect("the layer");
    let layer = layout.add("application/vnd.oci.image.layer.v1.tar", &bytes);
    let config = json!({
        "architecture": "amd64",
        "os": "linux",
        "config": { "Entrypoint": ["/pause"] },
        // Not compressed, so that its digest is the layer's own.
        "rootfs": { "type": "layers", "diff_ids": [layer["digest"]] },
    });
    let config = layout.add("application/vnd.oci.image.config.v1+json", config.to_string().as_bytes());
    let media_type = "application/vnd.oci.image.manifest.v1+json";
    let manifest =
        json!({ "schemaVersion": 2, "mediaType": media_type, "config": config, "layers": [layer] });
    let mut manifest = layout.add(media_type, manifest.to_string().as_bytes());
    manifest["annotations"] = json!({ "io.containerd.image.name": NAME });
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
    fs::write(layout.0.join("index.json"), index.to_string()).expect("the index");
    fs::write(layout.0.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).expect("the layout");
    let archive = folder.join("image.tar");
    tar(&layout.0, &archive);
    archive
}
