//! The properties of the fuzz targets hold for each file of their corpus.

use std::path::Path;

fn check_each(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut count = 0;
    for file in std::fs::read_dir(&folder).expect("the corpus") {
        let path = file.expect("a file").path();
        let data = std::fs::read(&path).expect("its content");
        println!("{}", path.display());
        check(&data);
        // Every prefix too, as a connection may break anywhere.
        for end in 0..data.len().min(1500) {
            check(&data[..end]);
        }
        count += 1;
    }
    assert!(count > 10, "{count} files");
}

#[test]
fn framing_corpus_satisfies_properties() {
    check_each("framing", eno_driver_netconf::fuzz::framing);
}

#[test]
fn xml_corpus_satisfies_properties() {
    check_each("xml", eno_driver_netconf::fuzz::xml);
}
