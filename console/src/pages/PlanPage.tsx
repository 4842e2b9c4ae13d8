import type { ComponentChildren } from "preact";
import { useId, useRef, useState } from "preact/hooks";
import type { Act, ApiError, Evaluation, Plan, PlanRequest } from "../api";
import { announce } from "../components/Announcer";
import { Empty, ErrorNotice, SessionNotices } from "../components/Answered";
import { Commands, CopyButton } from "../components/Command";
import { Name } from "../components/Name";
import { MaybeObject, ObjectLink } from "../components/ObjectLink";
import { Page } from "../components/Page";
import { Badge, Icon, PhaseBadge } from "../components/Status";
import { command, many, natural } from "../format";
import { asApiError, post, useSession } from "../live";
import type { Tone } from "../state";

/** What would change if manifests were applied or deleted. Nothing is applied. */
export function PlanPage() {
  const session = useSession().data;
  const [manifests, setManifests] = useState("");
  const [remove, setRemove] = useState(false);
  const [namespace, setNamespace] = useState("");
  const [busy, setBusy] = useState(false);
  const [over, setOver] = useState(false);
  const [plan, setPlan] = useState<Plan>();
  const [error, setError] = useState<ApiError>();
  const count = useRef(0);
  const file = useRef<HTMLInputElement>(null);
  const id = useId();

  const ask = async () => {
    const mine = ++count.current;
    setBusy(true);
    setError(undefined);
    try {
      const body: PlanRequest = { manifests, delete: remove, ...(namespace ? { namespace } : {}) };
      const answer = await post<Plan>("/api/plan", body);
      if (mine !== count.current) return;
      setPlan(answer);
      announce("The plan is there. Nothing was applied.");
    } catch (failure) {
      if (mine !== count.current) return;
      setPlan(undefined);
      setError(asApiError(failure));
    }
    setBusy(false);
  };
  const read = async (files: FileList | null | undefined) => {
    const texts = await Promise.all([...(files ?? [])].map((f) => f.text()));
    if (texts.length === 0) return;
    const parts = [manifests, ...texts].map((t) => t.trimEnd()).filter(Boolean);
    setManifests(parts.join("\n---\n") + "\n");
    announce(`${many(texts.length, "file")} read.`);
  };
  return (
    <Page title="Plan">
      <SessionNotices />
      <form
        class="block plan-form"
        onSubmit={(e) => {
          e.preventDefault();
          void ask();
        }}
      >
        <label for={id}>Manifests (YAML)</label>
        <textarea
          id={id}
          class={over ? "over" : undefined}
          rows={12}
          spellcheck={false}
          placeholder={"Paste manifests here, or drop files.\n\napiVersion: eno.k8s.io/v1alpha1\nkind: L2Service\n…"}
          value={manifests}
          onInput={(e) => setManifests(e.currentTarget.value)}
          onKeyDown={(e) => {
            if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) void ask();
          }}
          onDragOver={(e) => {
            e.preventDefault();
            setOver(true);
          }}
          onDragLeave={() => setOver(false)}
          onDrop={(e) => {
            e.preventDefault();
            setOver(false);
            void read(e.dataTransfer?.files);
          }}
        />
        <div class="plan-tools">
          <button type="submit" class="primary" disabled={busy || manifests.trim() === ""}>
            {busy ? "Computing …" : "Show the plan"}
          </button>
          <button type="button" onClick={() => file.current?.click()}>
            Open files
          </button>
          <input
            ref={file}
            type="file"
            hidden
            multiple
            accept=".yaml,.yml,.json"
            aria-label="Files with manifests"
            onChange={(e) => {
              void read(e.currentTarget.files);
              e.currentTarget.value = "";
            }}
          />
          <button type="button" disabled={manifests === ""} onClick={() => setManifests("")}>
            Clear
          </button>
          <label class="choose">
            <input type="checkbox" checked={remove} onChange={(e) => setRemove(e.currentTarget.checked)} />
            <span>as if they were deleted</span>
          </label>
          <label class="choose">
            <span>Namespace</span>
            <input
              type="text"
              value={namespace}
              placeholder={session?.namespace ?? "default"}
              onInput={(e) => setNamespace(e.currentTarget.value)}
            />
          </label>
          <span class="muted">Ctrl+Enter</span>
        </div>
      </form>
      {error && <ErrorNotice error={error} />}
      {plan && <Result plan={plan} />}
      <Commands
        commands={[
          command(
            ["eno", "plan", "-f", "FILE", ...(remove ? ["--delete"] : []), ...(namespace ? ["-n", namespace] : [])],
            session?.options,
          ),
        ]}
      />
    </Page>
  );
}

const ACTS: Record<Act, [Tone, string, string]> = {
  create: ["good", "+", "create"],
  change: ["wait", "~", "change"],
  delete: ["bad", "−", "delete"],
  none: ["none", "=", "no change"],
};

function ActWord({ act }: { act: Act }) {
  const [tone, sign, word] = ACTS[act];
  return (
    <span class={`act tone-${tone}`}>
      <span class="sign" aria-hidden="true">
        {sign}
      </span>
      {word}
    </span>
  );
}

const phaseOf = (e: Evaluation | undefined) =>
  e?.phase === undefined ? <span class="muted">absent</span> : <PhaseBadge phase={e.phase} />;

function Result({ plan }: { plan: Plan }) {
  const fails =
    plan.objects.filter((o) => o.after?.phase === "error").length +
    (plan.refused?.length ?? 0) +
    (plan.previews ?? []).filter((p) => p.failure || (p.rejected?.length ?? 0) > 0).length;
  const changes = plan.objects.filter((o) => o.act !== "none").length;
  return (
    <section class="plan" aria-label="Plan">
      <p class={`headline tone-${fails > 0 ? "bad" : "good"}`} role="status">
        <Icon tone={fails > 0 ? "bad" : "good"} />
        <strong>{fails > 0 ? `${many(fails, "thing")} would fail` : "Nothing would fail"}</strong>
        <span class="muted">
          {many(changes, "object")} would change · {many(plan.switches.length, "switch", "switches")}
        </span>
        <span class="not-applied">Nothing was applied.</span>
      </p>
      {plan.refused && plan.refused.length > 0 && (
        <section class="block refused">
          <h2>Refused</h2>
          <ul>
            {plan.refused.map((r) => (
              <li key={r.object} class="notice tone-bad">
                <Icon tone="bad" />
                <div>
                  <strong>
                    <bdi>{r.object}</bdi>
                  </strong>{" "}
                  <bdi class="name">{r.reason}</bdi>
                </div>
              </li>
            ))}
          </ul>
        </section>
      )}
      <PlanTable
        title="Objects"
        head={["change", "object", "is", "would be", "because"]}
        rows={plan.objects.map((o) => [
          <ActWord act={o.act} />,
          <ObjectLink object={[o.kind, o.namespace, o.name].filter(Boolean).join("/")} />,
          phaseOf(o.before),
          phaseOf(o.after),
          <bdi class="name">{o.after?.message ?? ""}</bdi>,
        ])}
      />
      <Switches plan={plan} />
      <PlanTable
        title="NetworkAttachmentDefinitions"
        head={["change", "name"]}
        rows={plan.networkAttachmentDefinitions.map((n) => [
          <ActWord act={n.act} />,
          <Name text={`${n.namespace}/${n.name}`} />,
        ])}
      />
      <PlanTable
        title="Nodes"
        head={["node", "networks"]}
        rows={plan.nodes.map((n) => [
          <Name text={n.name} />,
          Object.entries(n.networks).map(([network, act]) => (
            <div key={network}>
              <ActWord act={act} /> <Name text={network} />
            </div>
          )),
        ])}
      />
      <PlanTable
        title="Pods"
        head={["pod", "interfaces"]}
        rows={plan.pods.map((p) => [
          <Name text={`${p.namespace}/${p.name}`} />,
          p.interfaces.map((i) => (
            <div key={i.name}>
              <ActWord act={i.act} /> <Name text={i.name} /> <span class="muted">by</span> <MaybeObject text={i.owner} />
            </div>
          )),
        ])}
      />
      {plan.previews && plan.previews.length > 0 && (
        <section class="block">
          <h2>Edits that the switches would get</h2>
          <div class="previews">
            {plan.previews.map((p) => (
              <Preview key={p.switch} preview={p} />
            ))}
          </div>
        </section>
      )}
      <More title="Other objects in the manifests, which ENO does not plan" names={plan.others} />
      <More title="Left out, since you may not list them" names={plan.leftOut} />
      <More title="Checked only by the schema, since you may not write them" names={plan.checkedBySchema} />
    </section>
  );
}

/** A line of the changes of a switch. */
function Difference({ act, children }: { act: Act; children: ComponentChildren }) {
  const [, sign, word] = ACTS[act];
  return (
    <li class={act === "create" ? "plus" : act === "delete" ? "minus" : undefined}>
      <span aria-hidden="true">{sign}</span> {word} {children}
    </li>
  );
}

function Switches({ plan }: { plan: Plan }) {
  if (plan.switches.length === 0)
    return (
      <section class="block">
        <h2>Switches</h2>
        <Empty title="No switch would change." />
      </section>
    );
  return (
    <section class="block">
      <h2>
        Switches <span class="count">{plan.switches.length}</span>
      </h2>
      <div class="switches">
        {plan.switches.map((s) => (
          <div key={s.name} class="switch">
            <h3>
              <ObjectLink object={`FabricDevice/${s.name}`} short /> <span class="muted">{s.driver}</span>
              {s.waits && <Badge tone="wait" word="once it answers" />}
            </h3>
            <ul class="diff">
              {s.make !== undefined && (
                <li class="plus">
                  <span aria-hidden="true">+</span> make VLAN {s.make}
                </li>
              )}
              {s.delete !== undefined && (
                <li class="minus">
                  <span aria-hidden="true">−</span> delete VLAN {s.delete}
                </li>
              )}
              {Object.entries(s.ports ?? {})
                .sort((a, b) => natural(a[0], b[0]))
                .flatMap(([port, { add, remove }]) => [
                  add !== undefined && (
                    <li key={`${port}+`} class="plus">
                      <span aria-hidden="true">+</span> <bdi>{port}</bdi> add VLAN {add}
                    </li>
                  ),
                  remove !== undefined && (
                    <li key={`${port}-`} class="minus">
                      <span aria-hidden="true">−</span> <bdi>{port}</bdi> remove VLAN {remove}
                    </li>
                  ),
                ])}
              {Object.entries(s.vrfs ?? {}).map(([vrf, act]) => (
                <Difference key={`vrf ${vrf}`} act={act}>
                  VRF <bdi>{vrf}</bdi>
                </Difference>
              ))}
              {Object.entries(s.routed ?? {}).map(([vlan, { act, vrf, addresses }]) => (
                <Difference key={`routed ${vlan}`} act={act}>
                  VLAN {vlan} in VRF <bdi>{vrf}</bdi>: {addresses.join(", ")}
                </Difference>
              ))}
            </ul>
          </div>
        ))}
      </div>
    </section>
  );
}

function Preview({ preview: p }: { preview: NonNullable<Plan["previews"]>[number] }) {
  const text = p.edits.join("\n");
  return (
    <div class="preview">
      <div class="section-head">
        <h3>
          <bdi>{p.switch}</bdi>
        </h3>
        {text && <CopyButton text={text} what={`the edits of ${p.switch}`} />}
      </div>
      {p.failure && (
        <p class="notice tone-bad">
          <Icon tone="bad" />
          <bdi>{p.failure.reason}</bdi>
        </p>
      )}
      {p.unanswered !== undefined && (
        <p class="notice tone-wait">
          <Icon tone="wait" />
          <span>
            Its driver does not say what it would do: <bdi>{p.unanswered}</bdi>
          </span>
        </p>
      )}
      {p.rejected?.map((r, i) => (
        <p key={i} class="notice tone-bad">
          <Icon tone="bad" />
          <span>
            {r.vlan !== undefined && <strong>VLAN {r.vlan} </strong>}
            {r.vrf !== undefined && (
              <>
                VRF <bdi>{r.vrf}</bdi>{" "}
              </>
            )}
            {r.port !== undefined && (
              <strong>
                at <bdi>{r.port}</bdi>{" "}
              </strong>
            )}
            <bdi>{r.reason}</bdi>
          </span>
        </p>
      ))}
      {text ? (
        <pre tabIndex={0} role="group" aria-label={`Edits of ${p.switch}`}>
          {text}
        </pre>
      ) : (
        !p.failure && p.unanswered === undefined && <p class="muted">No edit is needed.</p>
      )}
    </div>
  );
}

function PlanTable({ title, head, rows }: { title: string; head: string[]; rows: ComponentChildren[][] }) {
  if (rows.length === 0) return null;
  return (
    <section class="block">
      <h2>
        {title} <span class="count">{rows.length}</span>
      </h2>
      <div class="table-scroll" tabIndex={0} role="group" aria-label={title}>
        <table>
          <thead>
            <tr>
              {head.map((h) => (
                <th key={h} scope="col">
                  {h}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, 500).map((cells, i) => (
              <tr key={i}>
                {cells.map((c, j) => (
                  <td key={j} class={j === head.length - 1 ? "wrap" : undefined}>
                    {c}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {rows.length > 500 && <p class="muted">… and {rows.length - 500} more; the command shows all.</p>}
    </section>
  );
}

function More({ title, names }: { title: string; names: string[] | undefined }) {
  if (!names || names.length === 0) return null;
  return (
    <p class="muted more">
      {title}: <bdi class="name">{names.join(", ")}</bdi>
    </p>
  );
}
