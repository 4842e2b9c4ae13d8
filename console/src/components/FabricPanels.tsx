import type { ComponentChildren } from "preact";
import type { Fabric, FabricLink, LinkDetail, PortDetail } from "../api";
import { countIds, many, natural, pathOf } from "../format";
import { useAnswer } from "../live";
import { queryString } from "../router";
import { badness } from "../state";
import { Answered, MissingNotices } from "./Answered";
import { Command } from "./Command";
import { linkName, Marks } from "./FabricDrawing";
import { Blame, Facts } from "./HopPanel";
import { Panel } from "./Panel";
import { StateBadge } from "./Status";

/** What a link carries, and who wants it. */
export function LinkPanel({ id, close, back }: { id: string; close: () => void; back?: ComponentChildren }) {
  const url = "/api/fabric/link" + queryString({ id });
  const answer = useAnswer<LinkDetail>(url);
  const link = answer.data?.link;
  return (
    <Panel title={link ? linkName(link) : id} about={`Link ${id}`} close={close}>
      {back}
      <Answered answer={answer} url={url} what="the link">
        {(d) => (
          <>
            <div class={`verdict tone-${d.link.state}`}>
              <StateBadge state={d.link.state} />
              <span>
                {many(d.link.vlans, "VLAN")} of ENO {d.link.lag !== undefined && <>· LAG {d.link.lag}</>}{" "}
                {d.link.marks.length > 0 && <>· {d.link.marks.join(", ")}</>}
              </span>
            </div>
            <MissingNotices missing={d.missing} />
            {d.ends.map((e) => (
              <End key={`${e.device} ${e.port}`} end={e} />
            ))}
            {d.commands.map((c) => (
              <Command key={c} text={c} />
            ))}
          </>
        )}
      </Answered>
    </Panel>
  );
}

function End({ end }: { end: PortDetail }) {
  const set = (ids: string) => (ids ? `${ids} (${countIds(ids)})` : "none");
  const { carried } = end;
  return (
    <section class="link-end">
      <h3>
        <bdi>{end.device}</bdi> <bdi>{end.port}</bdi>
      </h3>
      {end.message !== undefined && (
        <p class="verdict tone-refused">
          <bdi>{end.message}</bdi>
        </p>
      )}
      <Facts
        facts={[
          { name: "desired", value: set(end.desired) },
          ...(carried
            ? [
                { name: "observed, tagged", value: set(carried.tagged) },
                ...(carried.untagged === undefined ? [] : [{ name: "observed, untagged", value: String(carried.untagged) }]),
                ...(carried.open ? [{ name: "open trunk", value: "yes: no VLAN list, it carries everything" }] : []),
              ]
            : [{ name: "observed", value: "not known" }]),
          { name: "foreign", value: set(end.foreign) },
        ]}
      />
      {end.lines.length > 0 && <Blame lines={end.lines} title={`Who wants each VLAN at ${end.device} ${end.port}`} />}
    </section>
  );
}

/** A switch and its links. */
export function DevicePanel(props: { fabric: Fabric; name: string; close: () => void; select: (link: string) => void }) {
  const { fabric, name } = props;
  const device = fabric.devices.find((d) => d.name === name);
  const links = fabric.links.filter((l) => l.device === name || l.toDevice === name);
  return (
    <Panel title={name} about={`Device ${name}`} close={props.close}>
      {device ? (
        <>
          <div class={`verdict tone-${device.state}`}>
            <StateBadge state={device.state} />
            {device.message !== undefined && <bdi class="verdict-text">{device.message}</bdi>}
          </div>
          <Facts
            facts={[
              { name: "driver", value: device.driver },
              { name: "VLANs", value: String(device.vlans) },
              ...(device.marks.length > 0 ? [{ name: "marks", value: device.marks.join(", ") }] : []),
            ]}
          />
          <p class="panel-links">
            <a href={pathOf(`FabricDevice/${name}`)}>Its object</a>
            <a href={"/timeline" + queryString({ device: name })}>What happened to it</a>
          </p>
        </>
      ) : (
        <p class="muted">The fabric has no device of this name.</p>
      )}
      <LinkList links={links} from={name} select={props.select} />
      <Command text={`kubectl get fabricdevice ${name} -o yaml`} />
    </Panel>
  );
}

/** A node or a network outside, and its links. */
export function EndPanel(props: {
  fabric: Fabric;
  name: string;
  kind: "node" | "network";
  close: () => void;
  select: (link: string) => void;
}) {
  const { fabric, name, kind } = props;
  const links = fabric.links.filter((l) => (kind === "node" ? l.toNode : l.toNetwork) === name);
  return (
    <Panel title={name} about={`${kind === "node" ? "Node" : "Network"} ${name}`} close={props.close}>
      {links.length === 0 && <p class="muted">No port leads to it.</p>}
      <LinkList links={links} from={name} select={props.select} />
      {kind === "network" && <a href={pathOf(`PhysicalNetwork/${name}`)}>Its object</a>}
      <Command text={kind === "node" ? `kubectl describe node ${name}` : `kubectl get physicalnetwork ${name} -o yaml`} />
    </Panel>
  );
}

function LinkList({ links, from, select }: { links: FabricLink[]; from: string; select: (link: string) => void }) {
  const order = [...links].sort(
    (a, b) => badness(a.state) - badness(b.state) || natural(a.device, b.device) || natural(a.port, b.port),
  );
  if (order.length === 0) return null;
  return (
    <section>
      <h3>
        Links <span class="count">{order.length}</span>
      </h3>
      <ul class="link-list">
        {order.map((l) => (
          <li key={l.id}>
            <button type="button" onClick={() => select(l.id)}>
              <StateBadge state={l.state} />
              <bdi class="name">{l.device === from ? linkName(l).slice(from.length + 1) : linkName(l)}</bdi>
              <span class="muted">
                {l.lag !== undefined && `${l.lag} · `}
                {l.vlans} <Marks marks={l.marks} />
              </span>
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

