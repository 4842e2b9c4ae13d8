//! The files of a pool.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use eno_ipam::{Error, Locked, PoolDir, Reason, Requester, Root, Taken};
use tempfile::TempDir;

use crate::common::{address, gone, netns, ranges, requester};

/// A pool with these blocks.
fn pool(folder: &TempDir, blocks: &[&str]) -> PoolDir {
    let pool = Root::new(folder.path().join("ipam")).pool("storage").expect("a pool");
    pool.lock().expect("a lock").set_ranges(Some(&ranges(blocks))).expect("ranges");
    pool
}

fn taken(locked: &mut Locked<'_>, who: &Requester) -> String {
    match locked.take(who).expect("files") {
        Taken::Lease(net) => net.to_string(),
        Taken::Wait(reason) => reason.to_string(),
    }
}

#[test]
fn address_stays_with_its_interface_until_released() {
    let folder = TempDir::new().expect("a folder");
    let pool = pool(&folder, &["10.0.0.4/31"]);
    let mut locked = pool.lock().expect("a lock");
    assert_eq!(taken(&mut locked, &requester("one", "web")), "10.0.0.4/24");
    assert_eq!(taken(&mut locked, &requester("one", "web")), "10.0.0.4/24");
    let second = Requester { ifname: "net2".into(), ..requester("one", "web") };
    assert_eq!(taken(&mut locked, &second), "10.0.0.5/24");
    // Also when the node may give it no more, and when the namespace at the path is another one.
    locked.set_ranges(Some(&ranges(&["10.0.0.8/31"]))).expect("ranges");
    let again = Requester { netns: gone(), ..requester("one", "web") };
    assert_eq!(taken(&mut locked, &again), "10.0.0.4/24");
    let leases = locked.leases().expect("leases");
    assert_eq!(leases.len(), 2);
    assert_eq!(locked.lease("one", "net1").expect("leases").expect("a lease").netns, gone());

    assert!(locked.release("one", "net1").expect("files"));
    assert!(!locked.release("one", "net1").expect("files"));
    assert_eq!(locked.leases().expect("leases"), &leases[1..]);
}

#[test]
fn interface_waits_until_it_has_an_address() {
    let folder = TempDir::new().expect("a folder");
    let pool = pool(&folder, &["10.0.0.4/32"]);
    let mut locked = pool.lock().expect("a lock");
    locked.set_ranges(None).expect("ranges");
    let mut one = requester("one", "web");
    one.wanted = vec![address("2001:db8::9"), address("10.0.0.9")];
    assert_eq!(locked.take(&one).expect("files"), Taken::Wait(Reason::Unknown));
    assert_eq!(locked.waiting().expect("who waits")[0].address, None);

    locked.set_ranges(Some(&ranges(&["10.0.0.4/32"]))).expect("ranges");
    assert_eq!(locked.take(&one).expect("files"), Taken::Wait(Reason::NotHere(address("10.0.0.9"))));
    let waiting = locked.waiting().expect("who waits");
    assert_eq!((waiting.len(), waiting[0].address), (1, Some(address("10.0.0.9"))));
    let file = || fs::metadata(pool.path().join("waiting/one.net1")).expect("a file").ino();
    let before = file();
    locked.take(&one).expect("files");
    assert_eq!(file(), before, "it is not written again");

    one.wanted.clear();
    assert_eq!(taken(&mut locked, &one), "10.0.0.4/24");
    assert_eq!(locked.waiting().expect("who waits"), []);
    assert_eq!(locked.take(&requester("two", "web")).expect("files"), Taken::Wait(Reason::NoneFree));
    assert!(!locked.release("two", "net1").expect("files"));
    assert_eq!(locked.waiting().expect("who waits"), []);
}

#[test]
fn address_of_a_sandbox_that_is_gone_is_given_when_no_other_is_free() {
    let folder = TempDir::new().expect("a folder");
    let pool = pool(&folder, &["10.0.0.4/31"]);
    let mut locked = pool.lock().expect("a lock");
    assert_eq!(taken(&mut locked, &Requester { netns: gone(), ..requester("one", "web") }), "10.0.0.4/24");
    assert_eq!(taken(&mut locked, &requester("two", "web")), "10.0.0.5/24");
    assert_eq!(taken(&mut locked, &requester("three", "web")), "10.0.0.4/24");
    assert_eq!(locked.take(&requester("four", "web")).expect("files"), Taken::Wait(Reason::NoneFree));
    // The path is there, and leads to another namespace.
    let mut other = netns();
    other.inode += 1;
    assert!(eno_ipam::is_gone(&other) && eno_ipam::is_gone(&gone()) && !eno_ipam::is_gone(&netns()));
}

#[test]
fn names_from_outside_stay_within_the_folder() {
    let folder = TempDir::new().expect("a folder");
    let long = "a".repeat(254);
    for name in ["", ".", "..", ".new", "a/b", "../a", "a\0b", "ä", "a b", &long] {
        assert!(matches!(Root::new(folder.path()).pool(name), Err(Error::Name { .. })), "{name:?}");
    }
    let pool = pool(&folder, &["10.0.0.4/31"]);
    let mut locked = pool.lock().expect("a lock");
    for (container, ifname) in
        [("", "net1"), ("..", "net1"), ("a/b", "net1"), ("one", ".."), ("one", "a/b"), (&long[1..], "net1")]
    {
        let mut who = requester(container, "web");
        who.ifname = ifname.to_owned();
        assert!(matches!(locked.take(&who), Err(Error::Name { .. })), "{container:?} {ifname:?}");
        assert!(
            matches!(locked.release(container, ifname), Err(Error::Name { .. })),
            "{container:?} {ifname:?}"
        );
    }
    // `a.b` and `c` would have the file of `a` and `b.c`.
    assert!(matches!(locked.take(&requester("a.b", "web")), Err(Error::Container(_))));
    assert_eq!(locked.leases().expect("leases"), []);
}

#[test]
fn no_link_leads_out_of_the_folder() {
    let folder = TempDir::new().expect("a folder");
    let outside = folder.path().join("outside");
    fs::create_dir(&outside).expect("a folder");
    fs::write(outside.join("secret"), "\"secret\"").expect("a file");
    let unchanged = || {
        assert_eq!(fs::read_to_string(outside.join("secret")).expect("a file"), "\"secret\"");
        assert_eq!(fs::read_dir(&outside).expect("a folder").count(), 1);
    };
    let pool = pool(&folder, &["10.0.0.4/31"]);
    let link = |target: &Path, name: &str| {
        let path = pool.path().join(name);
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        symlink(target, path).expect("a link");
    };
    let take = |container: &str| pool.lock().and_then(|mut locked| locked.take(&requester(container, "web")));
    // What is written is replaced, and what is not needed is not read.
    for name in ["last", ".new", "leases/.new", "waiting/.new"] {
        link(&outside.join("secret"), name);
    }
    assert!(matches!(take("one"), Ok(Taken::Lease(_))));
    unchanged();
    for (target, name) in [
        (outside.join("secret"), "leases/two.net1"),
        (outside.join("secret"), "ranges.json"),
        (outside.join("new"), "lock"),
        (outside.clone(), "waiting"),
    ] {
        link(&target, name);
        let error = take("two").expect_err("a link").to_string();
        assert!(error.starts_with("open ") && error.contains(name), "{error}");
        unchanged();
        fs::remove_file(pool.path().join(name)).expect("the link");
    }
    fs::remove_dir_all(pool.path()).expect("a folder");
    symlink(&outside, pool.path()).expect("a link");
    assert!(take("two").is_err() && !pool.exists());
    unchanged();
}

#[test]
fn files_of_other_sizes_and_contents_are_refused() {
    let folder = TempDir::new().expect("a folder");
    let pool = pool(&folder, &["10.0.0.4/31"]);
    let locked = pool.lock().expect("a lock");
    for (content, says) in
        [("secret".to_owned(), "line 1, column 1"), (" ".repeat((4 << 20) + 1), "more than 4194304 bytes")]
    {
        fs::write(pool.path().join("ranges.json"), content).expect("a file");
        let error = locked.ranges().expect_err("an error").to_string();
        assert!(
            error.contains(says) && error.contains("storage/ranges.json") && !error.contains("secret"),
            "{error}"
        );
    }
    fs::create_dir(pool.path().join("leases/folder.net1")).expect("a folder");
    assert!(locked.leases().expect_err("an error").to_string().contains("leases/folder.net1 is no file"));
    let mode = fs::metadata(folder.path().join("ipam")).expect("a folder").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn pool_is_removed_once_nothing_is_in_it() {
    let folder = TempDir::new().expect("a folder");
    let root = Root::new(folder.path().join("ipam"));
    assert_eq!(root.pools().expect("pools"), [""; 0]);
    let pool = pool(&folder, &["10.0.0.4/32"]);
    let mut locked = pool.lock().expect("a lock");
    taken(&mut locked, &requester("one", "web"));
    taken(&mut locked, &requester("two", "web"));
    let still_there = |locked: Locked<'_>| {
        locked.remove_if_empty().expect("files");
        assert_eq!(root.pools().expect("pools"), ["storage"]);
    };
    still_there(locked);
    pool.lock().expect("a lock").set_ranges(None).expect("ranges");
    still_there(pool.lock().expect("a lock"));
    pool.lock().expect("a lock").release("one", "net1").expect("files");
    still_there(pool.lock().expect("a lock"));
    pool.lock().expect("a lock").release("two", "net1").expect("files");
    // Left by a process that was killed.
    fs::write(pool.path().join("leases/.new"), "").expect("a file");
    pool.lock().expect("a lock").remove_if_empty().expect("files");
    assert_eq!(fs::read_dir(folder.path().join("ipam")).expect("a folder").count(), 0);
}

/// Whoever has the lock of a folder that is being removed gets another one.
#[test]
fn no_lease_is_in_a_folder_that_was_removed() {
    let folder = TempDir::new().expect("a folder");
    let pool = pool(&folder, &["10.0.0.0/25"]);
    pool.lock().expect("a lock").set_ranges(None).expect("ranges");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let pool = &pool;
            scope.spawn(move || {
                for _ in 0..25 {
                    let container = format!("c{thread}");
                    pool.lock().expect("a lock").take(&requester(&container, "web")).expect("files");
                    let mut locked = pool.lock().expect("a lock");
                    assert!(
                        locked
                            .waiting()
                            .expect("who waits")
                            .iter()
                            .any(|waiting| waiting.container == container)
                    );
                    locked.release(&container, "net1").expect("files");
                    locked.remove_if_empty().expect("files");
                }
            });
        }
    });
    assert!(!pool.exists());
}
