//! The mutants: defects of the product that the seeded histories have to find.

/// A defect: the text in a file of `src` that it replaces, and the text in its place. Both are an expression or
/// statements. Where `to` names `MUTANT`, it is the whole text, and `MUTANT` is true for this defect.
pub struct Mutant {
    /// Its name, and what is wrong.
    pub name: &'static str,
    /// The file.
    pub file: &'static str,
    /// The text, which the file has once.
    pub from: &'static str,
    /// The text in its place.
    pub to: &'static str,
}

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "FenceForgotten: a command is published whatever the last sequence of its subject is",
        file: "schedule/mod.rs",
        from: "stored.as_ref().map_or(0, |stored| stored.sequence)",
        to: "0",
    },
    Mutant {
        name: "FailedPublishDropped: an acknowledgement is taken for granted: a failed publish is not tried again",
        file: "schedule/answers.rs",
        from: "            if !self.decision_publish_failed(target, now) {
                self.dirty.insert(target.clone());
            }",
        to: "            self.decision_publish_failed(target, now);",
    },
    Mutant {
        name: "LostCommandIgnored: a command that NATS lost is not published again",
        file: "schedule/answers.rs",
        from: "            if !self.repeat_decision(&target) {
                self.mark_dirty(target.clone(), now);
            }",
        to: "            self.repeat_decision(&target);",
    },
    Mutant {
        name: "LostStreamsIgnored: nothing is published again after NATS lost its streams",
        file: "schedule/answers.rs",
        from: "            if !matches!(slot.state, State::Publishing { .. }) {
                slot.state = State::Idle;
            }
            self.dirty.insert(target.clone());",
        to: "if !matches!(slot.state, State::Publishing { .. }) { slot.state = State::Idle; }",
    },
    Mutant {
        name: "CommandBeforeDecision: a participant of a transaction gets a new command before the decision",
        file: "schedule/mod.rs",
        from: "self.is_bound(target) || self.removing.get(target).is_some_and(purged)",
        to: "self.removing.get(target).is_some_and(purged)",
    },
    Mutant {
        name: "ForeignGenerationAccepted: a report of a generation that no engine issued counts",
        file: "schedule/answers.rs",
        from: "generation.term > self.term || (generation.term == self.term && generation.sequence > self.sequence)",
        to: "false",
    },
    Mutant {
        name: "DistrustedCommandNotRepeated: after such a report, the command is purged and not published again",
        file: "schedule/answers.rs",
        from: "        self.mark_dirty(target.clone(), now);
        self.purge(target.clone(), driver.into());",
        to: "        self.purge(target.clone(), driver.into());",
    },
    Mutant {
        name: "InheritedTransactionDropped: a new engine does not decide the transactions that it finds",
        file: "schedule/answers.rs",
        from: "self.decide_inherited(participant, generation, transaction, self.now);",
        to: "",
    },
    Mutant {
        name: "RefusalIgnored: a refused change counts as held",
        file: "schedule/answers.rs",
        from: "DriverAnswer::Held { refused: refuses(report) }",
        to: "DriverAnswer::Held { refused: false }",
    },
    Mutant {
        name: "DeadlineNeverExpires: a transaction is never late",
        file: "schedule/transaction.rs",
        from: "!open.is_decided() && open.opened + DEADLINE <= now",
        to: "false",
    },
    Mutant {
        name: "DeadlineOneLate: a transaction is not late yet at its deadline",
        file: "schedule/transaction.rs",
        from: "!open.is_decided() && open.opened + DEADLINE <= now",
        to: "!open.is_decided() && open.opened + DEADLINE < now",
    },
    Mutant {
        name: "AbortNotCommandedAgain: after an abort, the switches are not commanded again",
        file: "schedule/transaction.rs",
        from: "                // The target is commanded again at once, with its current desired state.
                self.dirty.insert(target.clone());",
        to: "",
    },
    Mutant {
        name: "DecisionNotRepeated: a decision that was not published is not published again",
        file: "schedule/transaction.rs",
        from: "        if self.repeat_decision(target) {
            return true;
        }",
        to: "        if self.has_sent_decision(target) {
            return true;
        }",
    },
    Mutant {
        name: "SilentParticipantBound: a participant that does not carry out its decision stays bound",
        file: "schedule/transaction.rs",
        from: "part.stage == Stage::DecisionSent && !part.inherited && timed_out(&self.slots, part)",
        to: "false",
    },
    Mutant {
        name: "ConfirmedBeforeAllHold: a transaction is confirmed when the first participant holds its change",
        file: "schedule/transaction.rs",
        from: "open.stages().any(|stage| stage == Stage::Working)",
        to: "false",
    },
    Mutant {
        name: "RefusalConfirmed: a refused change is confirmed",
        file: "schedule/transaction.rs",
        from: "open.stages().any(|stage| stage == (Stage::Holding { refused: true }))",
        to: "false",
    },
    Mutant {
        name: "FailedParticipantForgotten: a switch that fails in a transaction is not commanded again",
        file: "schedule/transaction.rs",
        from: r#"                part.stage = Stage::Released;
                self.dirty.insert(target.clone());
                self.decide(index, Decision::Abort, "failed", Vec::new(), now);"#,
        to: r#"                part.stage = Stage::Released;
                self.decide(index, Decision::Abort, "failed", Vec::new(), now);"#,
    },
    Mutant {
        name: "FormerReportInTransaction: a report on a former command counts in a transaction",
        file: "schedule/transaction.rs",
        from: "part.generation <= *generation",
        to: "true",
    },
    Mutant {
        name: "SecondPublishInFlight: a target gets a command while another one is being published",
        file: "schedule/mod.rs",
        from: "State::Publishing { .. } => Wait::Blocked",
        to: "State::Publishing { .. } if !MUTANT => Wait::Blocked",
    },
    Mutant {
        name: "EarlyReportForgotten: a report that comes before the acknowledgement of its command does not count",
        file: "schedule/answers.rs",
        from: "if reported { State::Idle } else { State::Outstanding(generation.clone(), now) }",
        to: "State::Outstanding(generation.clone(), now)",
    },
    Mutant {
        name: "UnconfirmedStateCommanded: a state that was only held counts as commanded",
        file: "schedule/mod.rs",
        from: "!stored.unconfirmed",
        to: "true",
    },
    Mutant {
        name: "DecisionTakesChange: a decision drops the change that waits for it",
        file: "schedule/mod.rs",
        from: "transaction.as_ref().is_none_or(|transaction| transaction.decision.is_none())",
        to: "true",
    },
    Mutant {
        name: "UncommandedNotPurged: the messages of targets that are gone stay on NATS",
        file: "engine/commands.rs",
        from: "self.schedule.driver(&target).is_some() || self.desired(&target).is_none()",
        to: "false",
    },
    Mutant {
        name: "RefusedNetworkNotWithheld: a network that a switch refused is tried again at once",
        file: "engine/reports.rs",
        from: "self.fabric.withhold_rejected(&self.store, name, &report, &mut self.work);",
        to: "",
    },
    Mutant {
        name: "AnyReportConfirmsNad: a report on any state confirms a NAD",
        file: "status/whole.rs",
        from: "last.hash == self.hash",
        to: "true",
    },
    Mutant {
        name: "DeletedBeforeRemoval: the finalizer goes before the VLANs",
        file: "evaluate/mod.rs",
        from: "
            .or_else(|| self.remains_on_switches(key, &mut evaluation))",
        to: "",
    },
    Mutant {
        name: "ReadyWithOtherInputs: a ready object stays ready when its inputs change",
        file: "evaluate/mod.rs",
        from: "before == evaluation.inputs",
        to: "true",
    },
    Mutant {
        name: "InputsForgotten: a status lacks the inputs with which its object is ready",
        file: "evaluate/write.rs",
        from: "evaluation.inputs.filter(|_| *phase == Phase::Ready)",
        to: "None",
    },
    Mutant {
        name: "LostDecisionIgnored: a decision that NATS lost is not sent again",
        file: "schedule/answers.rs",
        from: "self.is_bound(target) && !self.has_sent_decision(target)",
        to: "self.is_bound(target)",
    },
    Mutant {
        name: "ForgeryForgotten: a report that nobody can have made stays if a transaction binds its target",
        file: "schedule/answers.rs",
        from: "self.distrusted.insert((target.clone(), driver.into()));",
        to: "",
    },
    Mutant {
        name: "ChangedVlanNotMarked: a VLAN that changes is not rendered again",
        file: "fabric/device/mod.rs",
        from: "self.rendering.changed.insert(vid);",
        to: "",
    },
    Mutant {
        name: "BlockNotRendered: a block with a changed VLAN stays as it was",
        file: "fabric/device/render.rs",
        from: "vlans.set_block(block, blocks.share(block, wanted.collect()));",
        to: "if !MUTANT || before.is_none() { vlans.set_block(block, blocks.share(block, wanted.collect())); }",
    },
    Mutant {
        name: "PortKeepsVlan: a changed VLAN stays on the ports that carried it before",
        file: "fabric/device/render.rs",
        from: "former.difference(changed).union(&carries)",
        to: "former.union(&carries)",
    },
    Mutant {
        name: "TreeOfAnotherState: a changed state has the hashes of the state before",
        file: "fabric/device/render.rs",
        from: "self.tree.updated(before, &desired)",
        to: "(*self.tree).clone()",
    },
    Mutant {
        name: "BlockLeasedBeforeReport: a block is leased again before its former node has reported that it is gone",
        file: "pods/ranges/settle.rs",
        from: "self.has_confirmed(&block.node, version)",
        to: "true",
    },
    Mutant {
        name: "BlockBeforeStatus: a block is commanded before the status says that the node has it",
        file: "pods/ranges/settle.rs",
        from: "revision <= self.leasing.written",
        to: "true",
    },
    Mutant {
        name: "ReportOfFormerState: a report on an earlier state counts as one on the same state that is commanded again",
        file: "node/target.rs",
        from: "is_stored && self.addresses_version.is_some()",
        to: "self.addresses_version.is_some()",
    },
    Mutant {
        name: "AwaitedSwitchIgnored: an object is not evaluated when the switch that it waits for confirms",
        file: "store/mod.rs",
        from: "awaited.is_none_or(|awaited| awaited >= switch)",
        to: "awaited.is_none_or(|awaited| awaited > switch)",
    },
];
