//! Runs the suite against a driver whose switch is a set in memory, which shows that the suite can be passed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use eno_schemas::{Applied, Desired, Failure, Item, PayloadKind, Rejection, VlanId, VlanSet};

use eno_conformance::{DriverFixture, fabric};
use eno_sbi::{Driver, HOLD, HoldOutcome, Identity, Intent, Reconciled, Work};

#[derive(Default)]
struct Switch {
    vlans: BTreeSet<u16>,
    writes: u64,
    unreachable: bool,
    refused: Option<u16>,
    /// The VLANs to restore when the change is not confirmed.
    before: Option<BTreeSet<u16>>,
}

impl Switch {
    fn roll_back(&mut self) {
        if let Some(before) = self.before.take() {
            self.vlans = before;
        }
    }
}

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Switch>>);

const FIRST: usize = 100;

fn vid(item: usize) -> u16 {
    u16::try_from(FIRST + item).unwrap()
}

impl Memory {
    fn switch(&self) -> MutexGuard<'_, Switch> {
        self.0.lock().unwrap()
    }

    /// A round trip to the switch.
    async fn request<T>(&self, operation: impl FnOnce(&mut Switch) -> T) -> Result<T, Reconciled> {
        tokio::task::yield_now().await;
        let mut switch = self.switch();
        if switch.unreachable {
            let failure = Failure { reason: "reading: no answer".into(), retryable: true, unreachable: true };
            return Err(Reconciled::failed(failure));
        }
        Ok(operation(&mut switch))
    }

    async fn try_reconcile(&self, work: Work) -> Result<Reconciled, Reconciled> {
        let Desired::Fabric(desired) = &work.command.desired else {
            unreachable!("the host checks the kind")
        };
        self.request(Switch::roll_back).await?;
        let there = self.request(|switch| switch.vlans.clone()).await?;
        let intent = work.intent();
        if let Intent::RollBack { reason } = intent {
            return Ok(Reconciled::rolled_back(reason, applied(there)));
        }
        if matches!(intent, Intent::Hold(_)) {
            self.request(|switch| switch.before = Some(switch.vlans.clone())).await?;
        }
        let wanted: BTreeSet<u16> = desired.vlans.iter().map(|vlan| vlan.vid.get()).collect();
        let mut rejected = Vec::new();
        for vid in there.symmetric_difference(&wanted) {
            if !work.is_current() {
                return Err(Reconciled::failed(Failure::retryable("overtaken")));
            }
            let refused = self
                .request(|switch| {
                    if switch.refused == Some(*vid) {
                        return true;
                    }
                    switch.writes += 1;
                    if !switch.vlans.remove(vid) {
                        switch.vlans.insert(*vid);
                    }
                    false
                })
                .await?;
            if refused {
                let item = Item::vlan(VlanId::new(*vid).unwrap());
                rejected.push(Rejection::permanent(item, "refused"));
            }
        }
        let there = self.request(|switch| switch.vlans.clone()).await?;
        let done = Reconciled { rejected, ..Reconciled::applied(applied(there)) };
        if !matches!(intent, Intent::Hold(_)) {
            return Ok(done);
        }
        match work.hold(done.clone()).await {
            HoldOutcome::Confirm => {
                self.request(|switch| switch.before = None).await?;
                Ok(done)
            }
            HoldOutcome::Abort { reason } => {
                self.request(Switch::roll_back).await?;
                let there = self.request(|switch| switch.vlans.clone()).await?;
                Ok(Reconciled::rolled_back(reason, applied(there)))
            }
        }
    }
}

fn applied(there: BTreeSet<u16>) -> Applied {
    let vlans: VlanSet = there.into_iter().map(|vid| VlanId::new(vid).unwrap()).collect();
    Applied::Fabric {
        vlans,
        ports: BTreeMap::new(),
        carried: BTreeMap::new(),
        closed: None,
        before: BTreeMap::new(),
        vrfs: BTreeSet::new(),
        routed: VlanSet::EMPTY,
        lookup: None,
        bgp: BTreeMap::new(),
    }
}

impl Driver for Memory {
    fn identity(&self) -> Identity {
        Identity { name: "memory".into(), kinds: vec![PayloadKind::Fabric], capabilities: vec![HOLD.into()] }
    }

    async fn reconcile(&self, work: Work) -> Reconciled {
        self.try_reconcile(work).await.unwrap_or_else(|failed| failed)
    }
}

impl DriverFixture for Memory {
    type Driver = Self;

    fn item_count(&self) -> usize {
        4
    }

    fn driver(&self) -> Self {
        self.clone()
    }

    fn target(&self) -> String {
        "leaf1".into()
    }

    fn desired(&self, items: &BTreeSet<usize>) -> Desired {
        fabric(items.iter().map(|item| vid(*item)))
    }

    async fn items(&self) -> BTreeSet<usize> {
        self.switch().vlans.iter().map(|vid| usize::from(*vid) - FIRST).collect()
    }

    async fn foreign(&self) -> String {
        String::new()
    }

    async fn writes(&self) -> u64 {
        self.switch().writes
    }

    async fn set_reachable(&self, reachable: bool) {
        self.switch().unreachable = !reachable;
    }

    async fn set_refused(&self, item: Option<usize>) {
        self.switch().refused = item.map(vid);
    }

    async fn edit(&self, item: usize, present: bool) {
        let mut switch = self.switch();
        if present {
            switch.vlans.insert(vid(item));
        } else {
            switch.vlans.remove(&vid(item));
        }
    }

    fn names(&self, item: usize, found: &Item) -> bool {
        found.vlan.is_some_and(|vlan| vlan.get() == vid(item))
    }
}

eno_conformance::conformance_tests!(Memory::default());

/// The suite detects a driver that writes without reading first.
#[tokio::test]
#[should_panic(expected = "though nothing differed")]
async fn driver_that_always_writes_fails_the_suite() {
    #[derive(Clone, Default)]
    struct Careless(Memory);
    impl Driver for Careless {
        fn identity(&self) -> Identity {
            self.0.identity()
        }
        async fn reconcile(&self, work: Work) -> Reconciled {
            self.0.switch().writes += 1;
            self.0.reconcile(work).await
        }
    }
    impl DriverFixture for Careless {
        type Driver = Self;

        fn item_count(&self) -> usize {
            self.0.item_count()
        }

        fn driver(&self) -> Self {
            self.clone()
        }
        fn target(&self) -> String {
            self.0.target()
        }
        fn desired(&self, items: &BTreeSet<usize>) -> Desired {
            self.0.desired(items)
        }
        async fn items(&self) -> BTreeSet<usize> {
            self.0.items().await
        }
        async fn foreign(&self) -> String {
            self.0.foreign().await
        }
        async fn writes(&self) -> u64 {
            self.0.writes().await
        }
        async fn set_reachable(&self, reachable: bool) {
            self.0.set_reachable(reachable).await;
        }
        async fn set_refused(&self, item: Option<usize>) {
            self.0.set_refused(item).await;
        }
        async fn edit(&self, item: usize, present: bool) {
            self.0.edit(item, present).await;
        }
        fn names(&self, item: usize, found: &Item) -> bool {
            self.0.names(item, found)
        }
    }
    eno_conformance::checks::reconcile_without_drift_writes_nothing(&Careless::default()).await;
}
