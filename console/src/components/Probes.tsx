import type { ProbeResult, Verification } from "../api";
import { toneOfOutcome } from "../state";
import { Command } from "./Command";
import { Badge } from "./Status";

/** What agents found when somebody asked for new probes, and the command that asks. */
export function Probes({ verification, test }: { verification: Verification | undefined; test: string | undefined }) {
  const results = verification?.results ?? [];
  const leftOut = verification?.leftOut ?? 0;
  return (
    <section class="block">
      <h2>Probes on request</h2>
      {results.length > 0 && <Results results={results} />}
      {leftOut > 0 && <p class="muted">… and {leftOut} more.</p>}
      {results.length === 0 && <p class="muted">Nobody asks for new probes, or the answer is to come.</p>}
      {test !== undefined && (
        <>
          <h3>Test now</h3>
          <Command text={test} />
        </>
      )}
    </section>
  );
}

function Results({ results }: { results: ProbeResult[] }) {
  return (
    <div class="table-scroll" tabIndex={0} role="group" aria-label="Probes on request">
      <table class="plain">
        <thead>
          <tr>
            <th scope="col">from</th>
            <th scope="col">to</th>
            <th scope="col" class="number">
              VLAN
            </th>
            <th scope="col">result</th>
            <th scope="col">note</th>
          </tr>
        </thead>
        <tbody>
          {results.map((r, i) => (
            <tr key={i}>
              <td>
                <bdi>{r.from}</bdi>
              </td>
              <td>{r.to === undefined ? <span class="muted">nobody</span> : <bdi>{r.to}</bdi>}</td>
              <td class="number">{r.other === undefined ? r.vlan : `${r.vlan} → ${r.other}`}</td>
              <td>
                <Badge tone={toneOfOutcome(r.outcome)} word={r.outcome} />
              </td>
              <td class="wrap">
                <bdi>{r.reason ?? r.macs?.join(" ")}</bdi>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
