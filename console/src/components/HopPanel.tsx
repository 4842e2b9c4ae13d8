import { useEffect, useState } from "preact/hooks";
import type { ApiError, BlameLine, Condition, Configuration, Edits, HopDetail } from "../api";
import { queryString } from "../router";
import { asApiError, request, useAnswer } from "../live";
import { Answered, ErrorNotice, Loading, MissingNotices } from "./Answered";
import { Command, CopyButton } from "./Command";
import { MaybeObject } from "./ObjectLink";
import { Panel } from "./Panel";
import { Badge, StateBadge } from "./Status";
import { Ago } from "./Time";

/** What is exactly configured at a hop of an object's path. */
export function HopPanel(props: { object: string; id: string; label: string; close: () => void }) {
  const url = "/api/hop" + queryString({ object: props.object, id: props.id });
  const answer = useAnswer<HopDetail>(url);
  const title = answer.data?.hop.label ?? props.label;
  return (
    <Panel title={title} about={`Hop ${title}`} close={props.close}>
      <Answered answer={answer} url={url} what="the configuration of the hop">
        {(d) => (
          <>
            <div class={`verdict tone-${d.hop.state}`}>
              <StateBadge state={d.hop.state} />
              {d.hop.message && <bdi class="verdict-text">{d.hop.message}</bdi>}
            </div>
            <MissingNotices missing={d.missing} />
            <Facts
              facts={[
                ...(d.hop.detail ? [{ name: "at", value: d.hop.detail }] : []),
                ...(d.hop.vlans ? [{ name: "VLANs", value: d.hop.vlans }] : []),
                ...(d.hop.mtu ? [{ name: "MTU", value: String(d.hop.mtu) }] : []),
                ...(d.hop.addresses ?? []).map((value) => ({ name: "address", value })),
                ...d.facts,
              ]}
            />
            <Configurations configurations={d.configurations} />
            {d.hop.vlans && /^(port|switch|routed):/.test(d.hop.id) && (
              <DriverEdits key={props.id} object={props.object} id={props.id} />
            )}
            {d.blame && d.blame.length > 0 && <Blame lines={d.blame} />}
            {d.conditions.length > 0 && (
              <section>
                <h3>Conditions</h3>
                <Conditions conditions={d.conditions} />
              </section>
            )}
            {d.commands.length > 0 && (
              <section>
                <h3>The same on the command line</h3>
                {d.commands.map((c) => (
                  <Command key={c} text={c} />
                ))}
              </section>
            )}
          </>
        )}
      </Answered>
    </Panel>
  );
}

function Configurations({ configurations }: { configurations: Configuration[] }) {
  return (
    <>
      {configurations.map((c, i) => (
        <section key={i} class="configuration">
          <div class="section-head">
            <h3>{c.title}</h3>
            <CopyButton text={c.text} what={c.title} />
          </div>
          <pre tabIndex={0} role="group" aria-label={c.title}>
            {c.text}
          </pre>
        </section>
      ))}
    </>
  );
}

/** What the driver would send to the switch. The driver reads the switch for it: once, and again when it is wanted. */
function DriverEdits({ object, id }: { object: string; id: string }) {
  const [edits, setEdits] = useState<Edits>();
  const [error, setError] = useState<ApiError>();
  const [asked, setAsked] = useState(0);
  useEffect(() => {
    let closed = false;
    request<Edits>("/api/edits" + queryString({ object, id }))
      .then((answer) => {
        if (closed) return;
        setEdits(answer);
        setError(undefined);
      })
      .catch((failure: unknown) => !closed && setError(asApiError(failure)));
    return () => {
      closed = true;
    };
  }, [object, id, asked]);
  return (
    <section>
      <div class="section-head">
        <h3>Edits of the driver</h3>
        <button type="button" onClick={() => setAsked(asked + 1)}>
          Ask again
        </button>
      </div>
      {error && <ErrorNotice error={error} />}
      {!edits && !error && <Loading what="the switch" />}
      {edits && <MissingNotices missing={edits.missing} />}
      {edits && edits.missing.length === 0 && edits.now.length === 0 && (
        <p class="muted">None: the switch has what is desired, and the driver would send nothing.</p>
      )}
      {edits && <Configurations configurations={[...edits.now, ...edits.removal]} />}
    </section>
  );
}

/** Names and values. */
export function Facts({ facts }: { facts: { name: string; value: string }[] }) {
  if (facts.length === 0) return null;
  return (
    <dl class="facts">
      {facts.map((f, i) => (
        <div key={i}>
          <dt>{f.name}</dt>
          <dd>
            <bdi>{f.value}</bdi>
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** Who wants each VLAN of a port. */
export function Blame({ lines, title = "Who wants each VLAN" }: { lines: BlameLine[]; title?: string }) {
  const shown = lines.slice(0, 300);
  const isRouter = lines.some((l) => l.vrf !== undefined);
  return (
    <section>
      <h3>{title}</h3>
      <div class="table-scroll" tabIndex={0} role="group" aria-label={title}>
        <table class="plain">
          <thead>
            <tr>
              <th scope="col" class="number">
                VLAN
              </th>
              <th scope="col">wanted by</th>
              {isRouter && <th scope="col">VRF</th>}
              <th scope="col">note</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((l) => (
              <tr key={l.vlan}>
                <td class="number">{l.vlan}</td>
                <td>
                  {l.wantedBy.length === 0 ? <span class="muted">nobody</span> : null}
                  {l.wantedBy.map((o) => (
                    <div key={o}>
                      <MaybeObject text={o} />
                    </div>
                  ))}
                </td>
                {isRouter && (
                  <td>
                    <bdi>{l.vrf}</bdi>
                    {l.addresses?.map((address) => <div key={address}>{address}</div>)}
                  </td>
                )}
                <td>
                  <bdi>{l.note}</bdi>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {lines.length > shown.length && <p class="muted">… and {lines.length - shown.length} more; the command shows all.</p>}
    </section>
  );
}

/** The conditions of an object. Whether a condition is good depends on its type: those that are good when True end so. */
export function Conditions({ conditions }: { conditions: Condition[] }) {
  return (
    <div class="table-scroll" tabIndex={0} role="group" aria-label="Conditions">
      <table class="plain">
        <thead>
          <tr>
            <th scope="col">condition</th>
            <th scope="col">status</th>
            <th scope="col">reason</th>
            <th scope="col">since</th>
            <th scope="col">message</th>
          </tr>
        </thead>
        <tbody>
          {conditions.map((c) => (
            <tr key={c.type}>
              <th scope="row">{c.type}</th>
              <td>
                <Badge tone={toneOfCondition(c)} word={c.status} />
              </td>
              <td>{c.reason}</td>
              <td class="nowrap">
                <Ago at={c.since} />
              </td>
              <td class="wrap">
                <bdi>{c.message}</bdi>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Conditions that report trouble when they are True. */
const TROUBLE = new Set([
  "Stalled", "Degraded", "ForeignPods", "UnknownOpts", "Held", "OpenTrunk", "VlanTakenOff", "ClusterIDClash", "Drift",
  "TrunkNotActive", "NoBGPState", "NoConfirmedCommit", "NoMacTable", "NoRunningLock", "StartupNotSaved", "ClockSkew",
  "SharedDistinguisher", "Miswired", "AddressesLow", "AnnouncedToAll",
]);
/** Conditions that report trouble when they are False. Those of others are in neither list. */
const FINE = new Set([
  "AddressesAssigned", "AddressesSeparate", "AddressesUnique", "CallbackDelivered", "CanRollBack", "EndsJoined",
  "FabricManaged", "FabricReady", "NADReady", "NextHopAnswers", "NodesReady", "PathMTU", "PodsReady", "Reachable", "Ready",
  "Recorded", "TrunkChecked", "UsedByTemplates", "Verified",
]);

function toneOfCondition(c: Condition) {
  if (c.status === "Unknown" || !(TROUBLE.has(c.type) || FINE.has(c.type))) return "none";
  if ((c.status === "True") !== TROUBLE.has(c.type)) return "good";
  return c.reason === "Waiting" || c.reason === "Terminating" || c.type === "Held" ? "wait" : "bad";
}
