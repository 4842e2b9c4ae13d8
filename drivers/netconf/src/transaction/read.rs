//! Reads the device.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use eno_schemas::DeviceRole;

use crate::operation::Operation;
use crate::plan::{
    Baseline, Exclusions, Inventory, ObservedBgp, ObservedConfig, ObservedPort, ObservedRouting, Plan,
    Routing, Unsettled, concerns_bgp, concerns_routing, has_ours, has_own_bgp, interfaces, plan,
    switched_or_routed,
};
use crate::session::{Call, CallError, Session};
use crate::text::Text;
use crate::transaction::{Transaction, TransactionError};

/// The selection of a read.
pub(super) struct View<'a> {
    /// The subtree filter.
    pub(super) filter: String,
    /// The selected VLANs and interfaces, and the baseline for all others; absent: the filter selects all.
    part: Option<(Unsettled<'a>, &'a Baseline)>,
}

impl View<'_> {
    /// Whether the filter selects these interfaces and all VLANs of the change.
    fn selects_all_of(&self, planned: &Plan) -> bool {
        let Some((read, _)) = &self.part else { return true };
        let ports = planned.changes.ports.keys().chain(planned.before.keys());
        planned.changes.on_device().is_subset(&read.vlans)
            && ports.into_iter().all(|name| read.interfaces.contains(name.as_str()))
    }
}

impl<S: Session> Transaction<'_, S> {
    /// Selects everything, or only what may differ from `baseline`.
    pub(super) fn view<'b>(&'b self, baseline: Option<&'b Baseline>) -> View<'b> {
        let part = baseline.and_then(|baseline| {
            let read = baseline.unsettled(self.desired, self.own_before)?;
            let filter = self.dialect.filter_for(&read.vlans, &read.interfaces)?;
            Some(View { filter, part: Some((read, baseline)) })
        });
        part.unwrap_or_else(|| View { filter: self.dialect.filter(&interfaces(self.desired)), part: None })
    }

    /// Reads everything where the change needs more than the view selected. Somebody else has then changed the device
    /// since the baseline.
    pub(super) async fn widen<'v>(
        &'v self,
        observed: ObservedConfig,
        view: &mut View<'v>,
        inventory: &mut Option<Inventory>,
    ) -> Result<ObservedConfig, TransactionError> {
        if view.selects_all_of(&plan(&observed, self.desired, &Exclusions::default())) {
            return Ok(observed);
        }
        drop(observed);
        *view = self.view(None);
        self.reread(view, inventory).await
    }

    pub(super) async fn reread(
        &self,
        view: &View<'_>,
        inventory: &mut Option<Inventory>,
    ) -> Result<ObservedConfig, TransactionError> {
        let reply = self.read(&view.filter).await?;
        self.parse(reply, view, inventory).await
    }

    /// Parses the configuration and adds the interfaces that exist unconfigured. The inventory is read once.
    pub(super) async fn parse(
        &self,
        reply: Text,
        view: &View<'_>,
        inventory: &mut Option<Inventory>,
    ) -> Result<ObservedConfig, TransactionError> {
        let requested = match &view.part {
            Some((read, _)) => read.interfaces.clone(),
            None => interfaces(self.desired),
        };
        let (mut observed, mut answers_several_names) =
            self.parse_interfaces(reply, inventory.as_ref(), &requested).await?;
        observed.vlans.settle(&self.desired.cluster);
        if let Some((read, baseline)) = &view.part {
            baseline.complete(&mut observed, read);
            answers_several_names |= baseline.answers_several_names();
        }
        if self.desired.device.role == DeviceRole::Switch {
            observed.deleted_by_others = self.own_before.difference(&observed.vlans.vids());
        }
        observed.routing = Box::pin(self.read_routing()).await?;
        if observed.routing.read().is_some() {
            let is_read = observed.routing.read().is_some_and(|read| read.bgp.is_some());
            if is_read {
                *self.own_bgp.lock().unwrap_or_else(PoisonError::into_inner) = Some(has_own_bgp(&observed));
            }
            *self.own_routing.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(has_ours(&observed, &self.desired.cluster));
        }
        let on_device = switched_or_routed(&observed, &self.desired.cluster);
        observed.contested = self.clash_detector.foreign_vlans(&on_device, self.desired);
        *self.read_baseline.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Baseline::of(&observed, self.desired, answers_several_names));
        let mut absent = interfaces(self.desired);
        absent.retain(|name| !observed.ports.contains_key(*name));
        if absent.is_empty() {
            return Ok(observed);
        }
        let current = match inventory {
            Some(current) => current,
            None => inventory.insert(self.inventory(&absent).await?),
        };
        for name in absent.into_iter().filter(|name| current.contains_key(*name)) {
            observed.ports.insert(name.to_owned(), ObservedPort::default());
        }
        Ok(observed)
    }

    /// Reads the VRFs. A device that refuses that and needs none is one without VRFs.
    async fn read_routing(&self) -> Result<Routing, TransactionError> {
        let Some(routing) = self.dialect.routing() else { return Ok(Routing::Unknown(self.dialect.name())) };
        let is_needed = concerns_routing(self.desired);
        let found = *self.own_routing.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_needed && found == Some(false) {
            return Ok(Routing::NotRead);
        }
        let reply = match self.read(&routing.filter_routing(self.desired)).await {
            Err(CallError::Refused { .. }) if !is_needed && found.is_none() => {
                *self.own_routing.lock().unwrap_or_else(PoisonError::into_inner) = Some(false);
                return Ok(Routing::NotRead);
            }
            reply => reply?,
        };
        let mut read = routing.parse_routing(&reply)?;
        match self.read_bgp(&read).await? {
            Ok(bgp) => read.bgp = bgp,
            Err(refusal) => read.bgp_refusal = Some(refusal),
        }
        Ok(Routing::Read(Box::new(read)))
    }

    /// Reads BGP, of a device with these VRFs. The inner error is why the device refuses that. One that refuses it and needs
    /// none is one without BGP.
    async fn read_bgp(
        &self,
        routing: &ObservedRouting,
    ) -> Result<Result<Option<ObservedBgp>, String>, TransactionError> {
        let Some(bgp) = self.dialect.bgp() else { return Ok(Ok(None)) };
        let is_needed = concerns_bgp(self.desired);
        let found = *self.own_bgp.lock().unwrap_or_else(PoisonError::into_inner);
        let may_have_ours = found.unwrap_or_else(|| routing.vrfs.values().any(|vrf| vrf.is_vrf));
        if !is_needed && !may_have_ours {
            return Ok(Ok(None));
        }
        let reply = match self.read(&bgp.filter_bgp()).await {
            Err(CallError::Refused { .. }) if !is_needed && found.is_none() => {
                *self.own_bgp.lock().unwrap_or_else(PoisonError::into_inner) = Some(false);
                return Ok(Ok(None));
            }
            Err(CallError::Refused { errors, .. }) if found != Some(true) && !errors.are_transient() => {
                return Ok(Err(errors.to_string()));
            }
            reply => reply?,
        };
        let passwords = self.passwords.clone();
        Ok(Ok(Some(ObservedBgp { passwords, ..bgp.parse_bgp(&reply, &self.desired.cluster)? })))
    }

    /// Parses a reply. Reads missing interfaces singly unless the reply proves their absence. Also returns whether
    /// the device answers several names in a filter.
    async fn parse_interfaces(
        &self,
        mut reply: Text,
        inventory: Option<&Inventory>,
        requested: &BTreeSet<&str>,
    ) -> Result<(ObservedConfig, bool), TransactionError> {
        let nothing = Inventory::new();
        let inventory = inventory.unwrap_or(&nothing);
        let observed = self.dialect.parse(&reply, inventory)?;
        let is_shown = |name: &&str| observed.ports.get(*name).is_some_and(|port| port.configured);
        let (shown, lacking): (Vec<&str>, Vec<&str>) = requested.iter().copied().partition(is_shown);
        if lacking.is_empty() || !shows_first_only(requested.len(), shown.len()) {
            return Ok((observed, shown.len() > 1));
        }
        let filters = lacking.into_iter().filter_map(|name| self.dialect.filter_interface(name));
        let requested: Vec<Call> = filters.map(|filter| self.read(&filter)).collect();
        if requested.is_empty() {
            return Ok((observed, false));
        }
        for more in requested {
            reply.append(more.await?);
        }
        Ok((self.dialect.parse(&reply, inventory)?, false))
    }

    /// Reads which of these interfaces the device has.
    async fn inventory(&self, interfaces: &BTreeSet<&str>) -> Result<Inventory, TransactionError> {
        if let Some(request) = self.dialect.inventory_request() {
            match self.session.call(request.into()).await {
                Err(CallError::Refused { .. }) => {}
                reply => return Ok(self.requested(self.dialect.parse_inventory(&reply?)?, interfaces)),
            }
        }
        let reply = self.request_inventory(interfaces).await?;
        self.parse_inventory(reply, interfaces).await
    }

    /// Requests the operational state of interfaces.
    pub(super) fn request_inventory(&self, interfaces: &BTreeSet<&str>) -> Call {
        self.send(Operation::Get { filter: &self.dialect.inventory_filter(interfaces) })
    }

    /// Parses the reply to [`Self::request_inventory`], and reads missing interfaces singly.
    pub(super) async fn parse_inventory(
        &self,
        mut reply: Text,
        interfaces: &BTreeSet<&str>,
    ) -> Result<Inventory, TransactionError> {
        let inventory = self.requested(self.dialect.parse_inventory(&reply)?, interfaces);
        let (found, missing): (Vec<&str>, Vec<&str>) =
            interfaces.iter().partition(|name| inventory.contains_key(**name));
        if missing.is_empty() || !shows_first_only(interfaces.len(), found.len()) {
            return Ok(inventory);
        }
        let requested: Vec<Call> =
            missing.into_iter().map(|name| self.request_inventory(&[name].into())).collect();
        for more in requested {
            reply.append(more.await?);
        }
        Ok(self.requested(self.dialect.parse_inventory(&reply)?, interfaces))
    }

    /// The interfaces of an inventory that the command lists, or that were requested. Some devices return all.
    fn requested(&self, mut inventory: Inventory, requested: &BTreeSet<&str>) -> Inventory {
        let listed = interfaces(self.desired);
        inventory.retain(|name, _| listed.contains(&**name) || requested.contains(&**name));
        inventory
    }
}

/// Whether the server may answer only the first of several names in a subtree filter. RFC 6241 section 6.2.5 requires
/// all.
fn shows_first_only(requested: usize, found: usize) -> bool {
    requested > 1 && found <= 1
}
