// The answers of `eno ui`, as cli/src/ui/api makes them. Times are RFC 3339. An object is written `KIND/NAME` or
// `KIND/NAMESPACE/NAME`. Sets of VLAN IDs are texts such as "10-20,30".

/** What is missing in an answer, why, and what helps. */
export interface Missing {
  what: string;
  why: string;
  fix: string;
}

/** GET /api/session */
export interface Session {
  /** The version of eno. */
  version: string;
  /** The URL of the API server, or the file of the dump. */
  source: string;
  /** The dump's time; absent: live. */
  asOf?: string;
  /** The namespace of objects that name none. */
  namespace: string;
  /** Whether messages of NATS are known. */
  hasMessages: boolean;
  /** Options that the same answer needs of an `eno` command, such as `--context x` or `--from f.tar.gz`; may be empty. */
  options: string;
  missing: Missing[];
}

/** PodConfig and PodNetworkConfig are unset, configuring and configured in the places of pending and ready. */
export type Phase =
  | "pending"
  | "ready"
  | "error"
  | "terminating"
  | "deleted"
  | "unset"
  | "configuring"
  | "configured"
  | "-";

/** GET /api/objects: every object that the viewer may read. */
export interface Objects {
  objects: Row[];
  missing: Missing[];
}

export interface Row {
  object: string;
  phase: Phase;
  message?: string;
  /** When the condition Ready last changed. */
  since?: string;
}

/** The progress of a hop, worst first: refused, unreachable, missing, waiting, unknown, confirmed. */
export type State = "refused" | "unreachable" | "missing" | "waiting" | "unknown" | "confirmed";

/** GET /api/overview */
export interface Overview {
  notReady: NotReady[];
  counts: { kind: string; phases: Partial<Record<Phase, number>> }[];
  devices: DeviceRow[];
  nodes: NodeRow[];
  drivers: DriverRow[];
  /** Absent: messages of NATS are not known. */
  callbacks?: CallbackRow[];
  missing: Missing[];
}

export interface NotReady extends Row {
  /** It is ready, and a part of its path fails now (condition Degraded, or a switch that does not answer). */
  degraded: boolean;
  /** The part of the path that is not done: fabric, nodes, nad, pods, object (its own spec or what it names), device. */
  hop: string;
  /** The FabricDevices whose state is behind it. */
  devices: string[];
  reason: string;
  /** What helps, a sentence. */
  remedy: string;
  /** The command that shows it. */
  command: string;
}

export interface DeviceRow {
  name: string;
  driver: string;
  phase: Phase;
  /** Absent: not known. */
  reachable?: boolean;
  /** What differs; absent: nothing. */
  drift?: string;
  /** What is said of open trunks; absent: none. */
  openTrunk?: string;
  /** VLANs, and VLANs on ports, that are still to be changed. */
  pending?: number;
  lastTransaction?: { id?: string; at: string; tookMs: number; added: number; removed: number; outcome: string };
  model?: string;
  message?: string;
}

export interface NodeRow {
  name: string;
  /** The node is Ready in Kubernetes. */
  ready: boolean;
  /** State of its agent's last report; absent: no agent, or not known. */
  state?: State;
  message?: string;
  /** Networks of the host and interfaces in pods that are desired there. */
  networks: number;
  links: number;
}

export interface DriverRow {
  driver: string;
  instance: string;
  /** Targets of which it is the owner; absent: not known. */
  targets?: number;
  version?: string;
}

export interface CallbackRow {
  object: string;
  counter: number;
  attempts: number;
  /** Absent: it was given up. */
  nextTry?: string;
  error: string;
}

/** The tiers of a path, from the pod to the gateway. */
export type Tier = "pods" | "interfaces" | "bridges" | "nics" | "leaves" | "spines" | "gateways";

/** GET /api/path?object=KIND/NAMESPACE/NAME */
export interface Path {
  object: Row;
  conditions: Condition[];
  /** The answer to the last request for new probes; absent: nobody asks, or no answer is there yet. */
  verification?: Verification;
  /** The command that asks for new probes; absent: nothing is probed for its kind, or it is a dump. */
  test?: string;
  /** The networks on the path. */
  networks: { object: string; vlan: number; phase: Phase; subnets: string[] }[];
  hops: Hop[];
  links: PathLink[];
  /** Tiers of which the viewer may not list all that decides their hops. */
  hidden: Tier[];
  /** Objects that it names, and objects that name it. */
  references: string[];
  referencedBy: string[];
  /** The commands that show the same. */
  commands: string[];
  missing: Missing[];
}

/** What agents found when somebody asked for new probes. What failed comes first. */
export interface Verification {
  results?: ProbeResult[];
  /** How many results are left out. */
  leftOut?: number;
}

export interface ProbeResult {
  /** The node that asked. */
  from: string;
  /** The node or gateway that was asked; absent: nobody. */
  to?: string;
  vlan: number;
  /** The VLAN on which the next node was, where that is another one. */
  other?: number;
  outcome: "lost" | "leaking" | "too-big" | "silent" | "unasked" | "passed" | "answered" | "isolated";
  /** The MAC addresses that answered for a gateway. */
  macs?: string[];
  /** Why the node was not asked. */
  reason?: string;
}

export interface Condition {
  type: string;
  status: "True" | "False" | "Unknown";
  reason: string;
  message?: string;
  since: string;
}

export interface Hop {
  /** Unique in the path, stable over updates. */
  id: string;
  tier: Tier;
  label: string;
  /** The second line, such as the node of a bridge. */
  detail?: string;
  /** Hops of one group may be drawn as one: a workload (`Deployment/ns/name`), a node, a switch. */
  group: string;
  state: State;
  message?: string;
  vlans?: string;
  mtu?: number;
  addresses?: string[];
}

export interface PathLink {
  from: string;
  to: string;
  state: State;
}

/** GET /api/hop?object=…&id=… : the exact configuration of a hop. */
export interface HopDetail {
  hop: Hop;
  /** Name and value, for people. */
  facts: { name: string; value: string }[];
  /** Texts in the form of the thing itself. */
  configurations: Configuration[];
  /** Who wants each VLAN there; only of switch ports. */
  blame?: BlameLine[];
  conditions: Condition[];
  commands: string[];
  missing: Missing[];
}

/** GET /api/edits?object=…&id=… : what the driver of a switch would send. It reads the switch, so it is asked once. */
export interface Edits {
  now: Configuration[];
  /** What would take the VLANs of the path away, in the terms of the device; if there is nothing to send now. */
  removal: Configuration[];
  missing: Missing[];
}

export interface Configuration {
  title: string;
  language: "json" | "xml" | "text";
  text: string;
}

export interface BlameLine {
  vlan: number;
  wantedBy: string[];
  /** Only of routers: the VRF that the sub-interface is in. */
  vrf?: string;
  /** The addresses of the sub-interface. */
  addresses?: string[];
  /** Such as untagged, or not there yet. */
  note?: string;
}

/** GET /api/fabric */
export interface Fabric {
  devices: FabricDevice[];
  /** Machines at ports, whether they are Nodes that the viewer may read or not. */
  nodes: string[];
  networks: string[];
  links: FabricLink[];
  missing: Missing[];
}

export interface FabricDevice {
  name: string;
  /** Its distance to the nearest node or network: 0 for leaves, 1 for spines. */
  level: number;
  driver: string;
  state: State;
  message?: string;
  vlans: number;
  marks: Mark[];
}

export type Mark = "foreign" | "drift" | "open";

export interface FabricLink {
  /** Unique and stable: `device:port`, of the first of both ends. */
  id: string;
  device: string;
  port: string;
  lag?: string;
  /** The other end: one of these. */
  toDevice?: string;
  toPort?: string;
  toNode?: string;
  toInterface?: string;
  toNetwork?: string;
  state: State;
  /** How many of our VLANs are desired on it. */
  vlans: number;
  marks: Mark[];
}

/** GET /api/fabric/link?id=… */
export interface LinkDetail {
  link: FabricLink;
  ends: PortDetail[];
  commands: string[];
  missing: Missing[];
}

export interface PortDetail {
  device: string;
  port: string;
  desired: string;
  /** All that the port carries, ours and foreign; absent: not known. */
  carried?: { tagged: string; untagged?: number; open: boolean };
  foreign: string;
  lines: BlameLine[];
  message?: string;
}

/** GET /api/fabric/vlans: every VLAN ID that is desired on a switch. */
export interface Vlans {
  vlans: { id: number; owners: string[] }[];
  missing: Missing[];
}

/** GET /api/fabric/vlan?id=100: where it is. */
export interface VlanTree {
  id: number;
  owners: string[];
  devices: { name: string; state: State }[];
  /** Ids of links, with the VLAN's state on them. */
  links: { id: string; state: State }[];
}

/** GET /api/timeline?object=… | device=… | namespace=… ; the oldest first. */
export interface Timeline {
  entries: Entry[];
  /** What was asked was cut to this many entries, the newest; absent: it is whole. */
  cutTo?: number;
  commands: string[];
  missing: Missing[];
}

export interface Entry {
  at: string;
  /** phase, callback, report, command or event. */
  kind: "phase" | "callback" | "report" | "command" | "event";
  /** The object, or the driver and target. */
  subject: string;
  /** Such as `phase`, `callback` or `netconf leaf1`. */
  what: string;
  text: string;
  /** It is a failure. */
  failed: boolean;
  tookMs?: number;
  transaction?: string;
  phase?: Phase;
}

/** POST /api/plan */
export interface PlanRequest {
  manifests: string;
  delete: boolean;
  namespace?: string;
}

export type Act = "create" | "change" | "delete" | "none";

export interface Evaluation {
  phase?: Phase;
  message?: string;
}

/** The answer to PlanRequest: `eno plan -o json`, with edits in lines. An error is an ApiError with status 400. */
export interface Plan {
  objects: { kind: string; namespace?: string; name: string; act: Act; before?: Evaluation; after?: Evaluation }[];
  switches: {
    name: string;
    driver: string;
    make?: string;
    delete?: string;
    ports?: Record<string, { add?: string; remove?: string }>;
    vrfs?: Record<string, Act>;
    /** By VLAN ID. */
    routed?: Record<string, { act: Act; vrf: string; addresses: string[] }>;
    waits?: boolean;
  }[];
  networkAttachmentDefinitions: { namespace: string; name: string; act: Act }[];
  nodes: { name: string; networks: Record<string, Act> }[];
  pods: { namespace: string; name: string; interfaces: { name: string; act: Act; owner: string }[] }[];
  refused?: { object: string; reason: string }[];
  previews?: {
    switch: string;
    edits: string[];
    rejected?: { vlan?: number; port?: string; vrf?: string; reason: string }[];
    failure?: { reason: string };
    /** Why its driver did not answer. */
    unanswered?: string;
  }[];
  others?: string[];
  leftOut?: string[];
  checkedBySchema?: string[];
}

/** GET /api/addresses: `eno addresses -o json`. */
export interface Addresses {
  subnets: {
    subnet: string;
    network?: string;
    ipam: string;
    services: string[];
    pools: { by: "ipam" | "engine"; start: string; end: string; size?: number; held: number }[];
    /** With Ipam eno: what each node holds of it. `node` is absent if the viewer may not list it. */
    nodes?: { node?: string; blocks: string[]; size?: number; used: number; waiting?: number }[];
    /** With Ipam eno: addresses for one pod each. */
    fixed?: { address: string; pod?: string }[];
  }[];
  vlans: { physicalNetwork: string; ids: string; used: string; free: string }[];
  vlanHolders: Record<string, string[]>;
  leases: Lease[];
  leftOut?: string[];
}

export interface Lease {
  address: string;
  pod: string;
  interface: string;
  givenBy: string;
  subnet?: string;
}

/** GET /api/address?address=10.1.2.3 */
export interface AddressAnswer {
  /** What is known of it, in sentences. */
  lines: string[];
  leases: Lease[];
}

/** The body of every answer of /api with a status of 400 or more, but 401 and 403 of strangers. */
export interface ApiError {
  error: string;
  fix: string;
}

// GET /api/events: server-sent events.
/** event: state. Also the first event of each connection. */
export interface StateEvent {
  /** Counts changes of the state that the server knows. Answers to requests after this event contain the change. */
  revision: number;
  /** Objects that changed, if they are at most 100; absent: more, or the first event. */
  objects?: string[];
  /** FabricDevices with a new report or status. */
  devices?: string[];
}
/** event: sources. What the server can reach now; the first event and each change. */
export interface SourcesEvent {
  /** Absent: the API server answers. */
  kubernetes?: string;
  /** Absent: NATS answers, or is not asked at all. */
  nats?: string;
}
