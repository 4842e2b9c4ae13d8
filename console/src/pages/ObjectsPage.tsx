import { useMemo } from "preact/hooks";
import type { Objects, Phase, Row } from "../api";
import { Answered, Empty, MissingNotices } from "../components/Answered";
import { Commands } from "../components/Command";
import { DataTable, type Column } from "../components/DataTable";
import { Page } from "../components/Page";
import { PhaseBadge } from "../components/Status";
import { Ago } from "../components/Time";
import { command, natural, parts, pathOf } from "../format";
import { useAnswer, useMeasured, useSession } from "../live";
import { setQuery, usePlace } from "../router";
import { PHASES, phaseWord } from "../state";

interface Known extends Row {
  kind: string;
  namespace: string;
  name: string;
}

const COLUMNS: Column<Known>[] = [
  {
    key: "name",
    title: "Name",
    value: (r) => r.name,
    cell: (r) => (
      <a class="object" href={pathOf(r.object)}>
        <bdi class="name">{r.name}</bdi>
      </a>
    ),
    class: "names",
  },
  { key: "namespace", title: "Namespace", value: (r) => r.namespace },
  { key: "kind", title: "Kind", value: (r) => r.kind },
  {
    key: "phase",
    title: "Phase",
    value: (r) => phaseWord(r.phase),
    order: (r) => PHASES.indexOf(r.phase),
    cell: (r) => <PhaseBadge phase={r.phase} />,
    class: "nowrap",
  },
  {
    key: "since",
    title: "Since",
    value: (r) => r.since,
    cell: (r) => r.since && <Ago at={r.since} />,
    class: "nowrap",
  },
  { key: "message", title: "Message", value: (r) => r.message, class: "wrap" },
];

/** All objects that the viewer may read. */
export function ObjectsPage() {
  const { query } = usePlace();
  const url = "/api/objects";
  const answer = useAnswer<Objects>(url);
  const session = useSession().data;
  useMeasured("objects", answer);
  const kind = query.get("kind") ?? "";
  const namespace = query.get("namespace") ?? "";
  const phase = query.get("phase") ?? "";
  const known = useMemo(
    () => (answer.data?.objects ?? []).map((r): Known => ({ namespace: "", ...parts(r.object), ...r })),
    [answer.data],
  );
  const kinds = useMemo(() => [...new Set(known.map((r) => r.kind))].sort(natural), [known]);
  const namespaces = useMemo(
    () => [...new Set(known.map((r) => r.namespace))].filter(Boolean).sort(natural),
    [known],
  );
  const rows = useMemo(
    () =>
      known.filter(
        (r) =>
          (!kind || r.kind === kind) && (!namespace || r.namespace === namespace) && (!phase || r.phase === phase),
      ),
    [known, kind, namespace, phase],
  );
  return (
    <Page title="Objects" stale={answer.stale}>
      <Answered answer={answer} url={url} what="the objects">
        {(data) => (
          <>
            <MissingNotices missing={data.missing} />
            <div class="block">
              <DataTable
                name=""
                title="Objects"
                columns={COLUMNS}
                rows={rows}
                rowKey={(r) => r.object}
                href={(r) => pathOf(r.object)}
                searchable
                sort="phase"
                empty={
                  known.length === 0 ? (
                    <Empty title="There is no object of ENO here.">
                      Apply one, such as examples/demo, or see whether you may list them: <code>eno check</code>.
                    </Empty>
                  ) : (
                    <Empty title="No object matches.">Choose another kind, namespace or phase.</Empty>
                  )
                }
                tools={
                  <>
                    <Choose label="Kind" name="kind" value={kind} options={kinds} />
                    <Choose label="Namespace" name="namespace" value={namespace} options={namespaces} />
                    <Choose label="Phase" name="phase" value={phase} options={[...PHASES]} word={(p) => phaseWord(p as Phase)} />
                  </>
                }
              />
            </div>
            <Commands
              commands={[
                command(["eno", "status", "-o", "wide", ...(namespace ? ["-n", namespace] : [])], session?.options),
                ...(session?.asOf === undefined ? ["kubectl get eno -A"] : []),
              ]}
            />
          </>
        )}
      </Answered>
    </Page>
  );
}

/** A choice that is kept in the query string. */
export function Choose(props: {
  label: string;
  name: string;
  value: string;
  options: string[];
  word?: (option: string) => string;
}) {
  const options = props.value && !props.options.includes(props.value) ? [props.value, ...props.options] : props.options;
  return (
    <label class="choose">
      <span>{props.label}</span>
      <select
        value={props.value}
        onChange={(e) => setQuery({ [props.name]: e.currentTarget.value, page: undefined })}
      >
        <option value="">all</option>
        {options.map((o) => (
          <option key={o} value={o}>
            {props.word ? props.word(o) : o}
          </option>
        ))}
      </select>
    </label>
  );
}
