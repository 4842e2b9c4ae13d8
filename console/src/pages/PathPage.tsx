import { useMemo } from "preact/hooks";
import type { Hop, Path } from "../api";
import { useSpoken } from "../components/Announcer";
import { Answered, Empty, MissingNotices } from "../components/Answered";
import { Commands } from "../components/Command";
import { Conditions, HopPanel } from "../components/HopPanel";
import { Name } from "../components/Name";
import { ObjectLink } from "../components/ObjectLink";
import { cardElementId, PathDrawing } from "../components/PathDrawing";
import { Page } from "../components/Page";
import { focusLater } from "../components/Panel";
import { Probes } from "../components/Probes";
import { Icon, PhaseBadge } from "../components/Status";
import { Ago } from "../components/Time";
import { many, natural, parts } from "../format";
import { useAnswer, useMeasured } from "../live";
import { queryString, setQuery, usePlace } from "../router";
import { badness, phaseWord, toneOfPhase, toneOfState } from "../state";

/** The path of one object, from its pods to the gateway. */
export function PathPage({ object }: { object: string }) {
  const { query } = usePlace();
  const url = "/api/path" + queryString({ object });
  const answer = useAnswer<Path>(url);
  useMeasured("path", answer);
  const openText = query.get("open") ?? "";
  const open = useMemo(() => new Set(openText ? openText.split(" ") : []), [openText]);
  const selected = query.get("hop") ?? undefined;

  const select = (hop: Hop) => setQuery({ hop: hop.id });
  const toggle = (key: string) => {
    const next = new Set(open);
    const word = encodeKey(key);
    if (!next.delete(word)) next.add(word);
    setQuery({ open: [...next].join(" ") });
    focusLater(() => document.getElementById(cardElementId(`${next.has(word) ? "head" : "fold"} ${key}`)));
  };
  const close = () => {
    const id = selected;
    setQuery({ hop: undefined });
    if (id !== undefined) focusLater(() => document.getElementById(cardElementId(id)) ?? document.querySelector("h1"));
  };
  useSpoken(answer.data && `${object} is ${phaseWord(answer.data.object.phase)}`);
  const keys = useMemo(() => new Set([...open].map(decodeKey)), [open]);
  const { kind, namespace, name } = parts(object);
  const label = answer.data?.hops.find((h) => h.id === selected)?.label ?? selected ?? "";
  return (
    <Page
      title={namespace === undefined ? name : `${namespace}/${name}`}
      above={kind}
      stale={answer.stale}
      panel={selected !== undefined && <HopPanel object={object} id={selected} label={label} close={close} />}
    >
      <Answered answer={answer} url={url} what={`the path of ${object}`}>
        {(path) => (
          <>
            <Verdict path={path} select={select} />
            <MissingNotices missing={path.missing} />
            {path.hops.length > 0 ? (
              <PathDrawing path={path} open={keys} selected={selected} select={select} toggle={toggle} />
            ) : (
              <Empty title="This object has no path of its own.">
                Its conditions are below. Paths are drawn for objects that bring a network to pods, nodes or switches.
              </Empty>
            )}
            <div class="columns">
              <section class="block wide">
                <h2>Conditions</h2>
                {path.conditions.length > 0 ? (
                  <Conditions conditions={path.conditions} />
                ) : (
                  <Empty title="No conditions yet.">The engine has not reported on this object.</Empty>
                )}
              </section>
              {(path.test !== undefined || path.verification !== undefined) && (
                <Probes verification={path.verification} test={path.test} />
              )}
              <section class="block">
                <h2>Networks</h2>
                <Networks path={path} />
              </section>
              <References title="Names" objects={path.references} none="It names no other object." />
              <References title="Is named by" objects={path.referencedBy} none="No other object names it." />
              <section class="block">
                <Commands commands={path.commands} />
                <p class="more">
                  <a href={"/timeline" + queryString({ object })}>What happened to it in 7 days</a>
                </p>
              </section>
            </div>
          </>
        )}
      </Answered>
    </Page>
  );
}

// The keys of groups go into one parameter; spaces separate them.
const encodeKey = (key: string): string => encodeURIComponent(key);
function decodeKey(word: string): string {
  try {
    return decodeURIComponent(word);
  } catch {
    return word;
  }
}

/** The phase of the object in large, and where it stops. */
function Verdict({ path, select }: { path: Path; select: (hop: Hop) => void }) {
  const { phase, message, since } = path.object;
  const broken = path.hops
    .filter((h) => h.state === "refused" || h.state === "unreachable" || h.state === "missing")
    .sort((a, b) => badness(a.state) - badness(b.state));
  const waiting = path.hops.filter((h) => h.state === "waiting").length;
  const confirmed = path.hops.filter((h) => h.state === "confirmed").length;
  const degraded = path.conditions.find((c) => c.type === "Degraded" && c.status === "True");
  const isReady = toneOfPhase(phase) === "good";
  const tone = isReady && (degraded || broken.length > 0) ? "bad" : toneOfPhase(phase);
  return (
    <section class={`path-verdict tone-${tone}`} aria-label="Verdict">
      <div class="path-phase">
        <PhaseBadge phase={phase} />
        {since && (
          <span class="muted">
            since <Ago at={since} suffix={false} />
          </span>
        )}
      </div>
      <div class="path-why">
        {message && <bdi class="path-message">{message}</bdi>}
        {!message && isReady && degraded && (
          <span class="path-message">
            <strong>degraded:</strong> <bdi>{degraded.message}</bdi>
          </span>
        )}
        {!message && isReady && !degraded && confirmed > 0 && confirmed === path.hops.length && (
          <span>Every hop {path.hidden.length > 0 ? "that you may see" : "on the path"} is confirmed.</span>
        )}
        {broken.length > 0 && (
          <ul class="broken">
            {broken.slice(0, 3).map((h) => (
              <li key={h.id}>
                <button type="button" class={`broken-hop tone-${toneOfState(h.state)}`} onClick={() => select(h)}>
                  <Icon tone={toneOfState(h.state)} />
                  <span>{h.state}</span>
                  <bdi>
                    {h.detail ? `${h.detail} ` : ""}
                    {h.label}
                  </bdi>
                </button>
              </li>
            ))}
            {broken.length > 3 && <li class="muted">and {many(broken.length - 3, "more hop")}</li>}
          </ul>
        )}
        {broken.length === 0 && waiting > 0 && <span class="muted">{many(waiting, "hop")} still waiting.</span>}
      </div>
    </section>
  );
}

function Networks({ path }: { path: Path }) {
  if (path.networks.length === 0) return <p class="muted">No network is on this path.</p>;
  const shown = path.networks.slice(0, 200);
  return (
    <>
      <div class="table-scroll" tabIndex={0} role="group" aria-label="Networks">
        <table class="plain">
          <thead>
            <tr>
              <th scope="col">network</th>
              <th scope="col" class="number">
                VLAN
              </th>
              <th scope="col">phase</th>
              <th scope="col">subnets</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((n) => (
              <tr key={n.object}>
                <td>
                  <ObjectLink object={n.object} short />
                </td>
                <td class="number">
                  <a href={"/fabric" + queryString({ vlan: String(n.vlan) })} title={`VLAN ${n.vlan} in the fabric`}>
                    {n.vlan}
                  </a>
                </td>
                <td>
                  <PhaseBadge phase={n.phase} />
                </td>
                <td>
                  {n.subnets.map((s) => (
                    <div key={s}>
                      <Name text={s} />
                    </div>
                  ))}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {path.networks.length > shown.length && <p class="muted">… and {path.networks.length - shown.length} more.</p>}
    </>
  );
}

function References({ title, objects, none }: { title: string; objects: string[]; none: string }) {
  const sorted = [...objects].sort(natural);
  return (
    <section class="block">
      <h2>{title}</h2>
      {sorted.length === 0 && <p class="muted">{none}</p>}
      <ul class="references">
        {sorted.slice(0, 200).map((o) => (
          <li key={o}>
            <ObjectLink object={o} />
          </li>
        ))}
      </ul>
      {sorted.length > 200 && <p class="muted">… and {sorted.length - 200} more.</p>}
    </section>
  );
}

