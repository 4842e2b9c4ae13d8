//! Commands, versions, configurations and errors.

use std::fs;

use serde_json::{Value, json};

use super::{Node, answer, config, start};
use crate::common::{fixed, ranges};

#[test]
fn each_version_has_its_commands_and_its_form_of_answers() {
    for (version, has_family, has_check, has_gc) in [
        ("0.3.1", true, false, false),
        ("0.4.0", true, true, false),
        ("1.0.0", false, true, false),
        ("1.1.0", false, true, true),
    ] {
        let node = Node::with(&ranges(&["10.0.0.4/31"]));
        node.give("storage6", Some(&ranges(&["2001:db8::4/127"])));
        let mut config = config(version, &["storage", "storage6"]);
        config["ipam"]["routes"] =
            json!([{ "dst": "10.1.0.0/16", "gw": "10.0.0.1" }, { "dst": "2001:db8:1::/48" }]);
        config["ipam"]["dns"] = json!({ "nameservers": ["10.0.0.53"], "search": ["example.com"] });
        let versions =
            json!({ "cniVersion": version, "supportedVersions": ["0.3.1", "0.4.0", "1.0.0", "1.1.0"] });
        assert_eq!(node.call("VERSION", "one", &config), Ok(versions));

        let ip = |address: &str, family: &str| {
            if has_family {
                json!({ "address": address, "version": family })
            } else {
                json!({ "address": address })
            }
        };
        let added = json!({
            "cniVersion": version,
            "ips": [ip("10.0.0.4/24", "4"), ip("2001:db8::4/64", "6")],
            "routes": config["ipam"]["routes"],
            "dns": config["ipam"]["dns"],
        });
        assert_eq!(node.call("ADD", "one", &config), Ok(added.clone()));
        assert_eq!(node.call("ADD", "one", &config), Ok(added.clone()), "the same again");
        let refused = |command: &str| {
            let code = node.call(command, "one", &config).expect_err("an error")["code"].clone();
            assert_eq!(code, 1, "{command} of {version}");
        };
        if has_check {
            let mut with_result = config.clone();
            with_result["prevResult"] = added;
            assert_eq!(node.call("CHECK", "one", &with_result), Ok(Value::Null));
        } else {
            refused("CHECK");
        }
        for command in ["GC", "STATUS"] {
            if has_gc {
                assert_eq!(node.call(command, "one", &config), Ok(Value::Null), "{command}");
            } else {
                refused(command);
            }
        }
        assert_eq!((node.leases("storage").len(), node.leases("storage6").len()), (1, 1));
        assert_eq!(node.call("DEL", "one", &config), Ok(Value::Null));
        assert_eq!((node.leases("storage").len(), node.leases("storage6").len()), (0, 0));
    }
}

#[test]
fn check_fails_unless_the_interface_has_its_address() {
    let node = Node::with(&ranges(&["10.0.0.4/31"]));
    let mut config = config("1.0.0", &["storage"]);
    let code = |config: &Value| node.call("CHECK", "one", config).map_err(|error| error["code"].clone());
    assert_eq!(code(&config), Err(json!(101)));
    node.add("one", &config).expect("an address");
    assert_eq!(code(&config), Ok(Value::Null));
    config["prevResult"] = json!({ "ips": [{ "address": "10.0.0.5/24" }] });
    assert_eq!(code(&config), Err(json!(101)));
    config["prevResult"] = json!({ "ips": [{ "address": "10.0.0.4/24" }] });
    assert_eq!(code(&config), Ok(Value::Null));
    node.call("DEL", "one", &config).expect("an answer");
    assert_eq!(code(&config), Err(json!(101)));
}

#[test]
fn del_succeeds_where_nothing_is() {
    let node = Node::new();
    let storage = config("0.3.1", &["storage"]);
    // Before ADD, also without a namespace. It makes no folder.
    assert_eq!(node.call("DEL", "one", &storage), Ok(Value::Null));
    assert!(!node.root().exists());
    node.give("storage", Some(&ranges(&["10.0.0.4/31"])));
    node.add("one", &storage).expect("an address");
    for container in ["one", "one", "two", "a.b", "-"] {
        let mut command = node.command("DEL", container);
        command.env_remove("CNI_NETNS").env_remove("CNI_ARGS");
        assert_eq!(answer(start(command, &storage.to_string())), Ok(Value::Null), "{container}");
        assert_eq!(node.leases("storage").len(), 0);
    }
    // What ADD would refuse.
    for pools in [json!(null), json!([]), json!(["../storage"]), json!("storage")] {
        let config = json!({ "cniVersion": "0.3.1", "name": "net", "ipam": { "pools": pools } });
        assert_eq!(node.call("DEL", "one", &config), Ok(Value::Null));
    }
}

#[test]
fn pod_gets_the_addresses_that_it_asks_for() {
    let mut given = ranges(&["10.0.0.4/30"]);
    given.fixed = vec![fixed("10.0.0.30", "one")];
    let node = Node::with(&given);
    node.give("storage6", Some(&ranges(&["2001:db8::4/126"])));
    let config = config("1.0.0", &["storage", "storage6"]);
    for (container, runtime, args, expected) in [
        ("one", json!(null), json!(null), ["10.0.0.30/24", "2001:db8::4/64"]),
        ("two", json!(["10.0.0.6"]), json!(null), ["10.0.0.6/24", "2001:db8::5/64"]),
        (
            "three",
            json!(["10.0.0.5/24", "2001:db8::7/64"]),
            json!(["10.0.0.7"]),
            ["10.0.0.5/24", "2001:db8::7/64"],
        ),
        ("four", json!([]), json!(["2001:db8::6", "10.0.0.7/16"]), ["10.0.0.7/24", "2001:db8::6/64"]),
    ] {
        let mut config = config.clone();
        config["runtimeConfig"] = json!({ "ips": runtime, "mac": "02:00:00:00:00:01" });
        config["args"] = json!({ "cni": { "ips": args } });
        assert_eq!(node.add(container, &config), Ok(expected.map(String::from).to_vec()), "{container}");
    }
}

#[test]
fn errors_have_the_codes_of_cni_and_leave_nothing() {
    let node = Node::with(&ranges(&["10.0.0.4/31"]));
    let with = |key: &str, value: Value| {
        let mut config = config("1.0.0", &["storage"]);
        config[key] = value;
        config.to_string()
    };
    let ipam = |ipam: Value| with("ipam", ipam);
    let plain = with("name", json!("net"));
    let large = with("name", json!("n".repeat(1 << 20)));
    for (changed, config, code, says) in [
        (
            ("CNI_COMMAND", "ADD"),
            with("cniVersion", json!("0.2.0")),
            1,
            "\"0.2.0\" is none of 0.3.1, 0.4.0, 1.0.0, 1.1.0",
        ),
        (("CNI_COMMAND", "ADD"), with("cniVersion", json!(null)), 1, "\"0.1.0\""),
        (("CNI_COMMAND", ""), plain.clone(), 4, "CNI_COMMAND is missing"),
        (("CNI_COMMAND", "add"), plain.clone(), 4, "\"add\" is unknown"),
        (("CNI_CONTAINERID", ""), plain.clone(), 4, "CNI_CONTAINERID is missing"),
        (("CNI_CONTAINERID", "../one"), plain.clone(), 4, "container ID"),
        (("CNI_CONTAINERID", "a.b"), plain.clone(), 4, "has a dot"),
        (("CNI_IFNAME", "../net1"), plain.clone(), 4, "interface"),
        (("CNI_NETNS", ""), plain.clone(), 4, "CNI_NETNS is missing"),
        (("CNI_NETNS", "/run/netns/eno-none"), plain.clone(), 4, "look at /run/netns/eno-none"),
        (("CNI_ARGS", ""), plain.clone(), 4, "K8S_POD_NAME"),
        (("CNI_ARGS", "K8S_POD_NAMESPACE=a;K8S_POD_NAME=b;MORE=1"), plain.clone(), 4, "MORE is unknown"),
        (("CNI_ARGS", "K8S_POD_NAME"), plain, 4, "has no '='"),
        (("A", "a"), "{".into(), 6, "no JSON at line 1, column 1"),
        (("A", "a"), large, 6, "more than 1048576 bytes"),
        (("A", "a"), ipam(json!({})), 7, "ipam.pools"),
        (("A", "a"), ipam(json!({ "pools": ["storage", "storage"] })), 7, "ipam.pools"),
        (("A", "a"), ipam(json!({ "pools": ["a", "b", "c"] })), 7, "ipam.pools"),
        (("A", "a"), ipam(json!({ "pools": ["../storage"] })), 7, "Subnet \"../storage\""),
        (("A", "a"), ipam(json!({ "pools": ["storage"], "routes": [{ "dst": "here" }] })), 7, "/ipam/routes"),
        (
            ("A", "a"),
            with("runtimeConfig", json!({ "ips": ["10.0.0.4/33"] })),
            7,
            "\"10.0.0.4/33\" is no address",
        ),
        (
            ("A", "a"),
            with("runtimeConfig", json!({ "ips": ["10.9.0.4"] })),
            7,
            "10.9.0.4 is in the network of no Subnet",
        ),
    ] {
        let mut command = node.command("ADD", "one");
        command.env(changed.0, changed.1);
        let error = answer(start(command, &config)).expect_err("an error");
        assert_eq!(error["code"], code, "{changed:?} {error}");
        assert!(error["msg"].as_str().expect("a message").contains(says), "{says}: {error}");
        assert_eq!(node.leases("storage"), []);
        assert_eq!(node.waiting("storage"), []);
    }
}

#[test]
fn broken_files_are_named() {
    let node = Node::with(&ranges(&["10.0.0.4/31"]));
    let config = config("1.1.0", &["storage"]);
    fs::write(node.pool("storage").path().join("leases/other.net1"), "secret").expect("a file");
    let error = node.call("ADD", "one", &config).expect_err("an error");
    assert_eq!(error["code"], 100);
    let message = error["msg"].as_str().expect("a message");
    assert!(message.contains("leases/other.net1") && !message.contains("secret"), "{message}");
    assert_eq!(node.call("STATUS", "one", &config).expect_err("an error")["code"], 50);
    // Of one that is to go, nothing is read.
    assert_eq!(node.call("DEL", "other", &config), Ok(Value::Null));
    assert_eq!(node.call("STATUS", "one", &config), Ok(Value::Null));
    fs::remove_dir_all(node.root()).expect("a folder");
    fs::write(node.root(), "").expect("a file");
    assert_eq!(node.call("STATUS", "one", &config).expect_err("an error")["code"], 50);
    assert_eq!(node.call("ADD", "one", &config).expect_err("an error")["code"], 5);
}

/// Another network may have the pool, and its interfaces are in no list of this one.
#[test]
fn gc_releases_what_is_unlisted_and_gone() {
    let node = Node::with(&ranges(&["10.0.0.0/28"]));
    let mut config = config("1.1.0", &["storage"]);
    for container in ["living", "gone", "listed"] {
        node.add(container, &config).expect("an address");
    }
    for container in ["gone", "listed"] {
        fs::remove_file(node.sandbox(container)).expect("a sandbox");
    }
    let left = || node.leases("storage").into_iter().map(|lease| lease.container).collect::<Vec<_>>();
    config["cni.dev/valid-attachments"] = json!([{ "containerID": "listed", "ifname": "net1" }]);
    let mut command = node.command("GC", "");
    for unset in ["CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS", "CNI_ARGS"] {
        command.env_remove(unset);
    }
    assert_eq!(answer(start(command, &config.to_string())), Ok(Value::Null));
    assert_eq!(left(), ["listed", "living"]);
    config["cni.dev/valid-attachments"] = json!(null);
    assert_eq!(node.call("GC", "x", &config), Ok(Value::Null));
    assert_eq!(left(), ["living"]);
}
