import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { csv } from "../csv";
import { go, setQuery, usePlace } from "../router";
import { filtered, readSort, sorted, writeSort, type Value } from "../table";
import { Empty } from "./Answered";

export interface Column<R> {
  key: string;
  title: string;
  /** What the filter searches, and what CSV has. */
  value: (row: R) => Value;
  /** What the column sorts by; absent: the value. */
  order?: (row: R) => Value;
  /** What the cell shows; absent: the value. */
  cell?: (row: R) => ComponentChildren;
  numeric?: boolean;
  class?: string;
}

const PAGE = 200;

/** A table that is sorted, filtered and paged, with its state in the query string, and exported as CSV. */
export function DataTable<R>(props: {
  /** Begins the names of its parameters in the query string; unique on the page, "" for the main table. */
  name: string;
  title: string;
  columns: Column<R>[];
  rows: readonly R[];
  rowKey: (row: R) => string;
  sort?: string;
  /** Shown before the search field. */
  tools?: ComponentChildren;
  searchable?: boolean;
  /** What there is to do if there is no row at all. */
  empty?: ComponentChildren;
  level?: 2 | 3;
  rowClass?: (row: R) => string | undefined;
  /** A click anywhere on a row opens this; a cell has the same as a link. */
  href?: (row: R) => string;
}) {
  const { query } = usePlace();
  const param = (p: string) => (props.name ? `${props.name}.${p}` : p);
  const text = query.get(param("q")) ?? "";
  const sort = readSort(query.get(param("sort")) ?? props.sort ?? "");
  const { rows, columns } = props;
  const searchable = props.searchable ?? rows.length > 8;

  const found = useMemo(
    () => filtered(rows, text, (row) => columns.map((c) => c.value(row))),
    [rows, text],
  );
  const order = useMemo(() => {
    const by = columns.find((c) => c.key === sort.key);
    return by ? sorted(found, by.order ?? by.value, sort.down) : found;
  }, [found, sort.key, sort.down]);
  const pages = Math.max(1, Math.ceil(order.length / PAGE));
  const page = Math.min(pages, Math.max(1, Number(query.get(param("page"))) || 1));
  const shown = order.slice((page - 1) * PAGE, page * PAGE);

  const sortBy = (key: string) => {
    const down = sort.key === key && !sort.down;
    setQuery({ [param("sort")]: writeSort({ key, down }), [param("page")]: undefined });
  };
  const turn = (to: number) => setQuery({ [param("page")]: to === 1 ? undefined : String(to) });
  const Heading = props.level === 3 ? "h3" : "h2";
  return (
    <section class="data-table" aria-label={props.title}>
      <div class="table-tools">
        <Heading>
          {props.title}{" "}
          <span class="count">
            {found.length === rows.length ? rows.length.toLocaleString("en") : `${found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")}`}
          </span>
        </Heading>
        {props.tools}
        {(searchable || text) && (
          <input
            type="search"
            value={text}
            placeholder="Filter"
            aria-label={`Filter ${props.title}`}
            onInput={(e) => setQuery({ [param("q")]: e.currentTarget.value, [param("page")]: undefined })}
          />
        )}
        {rows.length > 0 && (
          <button type="button" class="quiet" onClick={() => download(props.title, columns, order)}>
            CSV
            <span class="offscreen">: save {props.title}</span>
          </button>
        )}
      </div>
      {order.length === 0 ? (
        rows.length === 0 ? (
          (props.empty ?? <Empty title="There is nothing here yet." />)
        ) : (
          <Empty title="No row matches.">Change or clear the filters.</Empty>
        )
      ) : (
        <div class="table-scroll" tabIndex={0} role="group" aria-label={`${props.title}, table`}>
          <table>
            <thead>
              <tr>
                {columns.map((c) => (
                  <th
                    key={c.key}
                    scope="col"
                    class={c.numeric ? "number" : undefined}
                    aria-sort={sort.key === c.key ? (sort.down ? "descending" : "ascending") : "none"}
                  >
                    <button type="button" class="sort" onClick={() => sortBy(c.key)}>
                      {c.title}
                      <span class="arrow" aria-hidden="true">
                        {sort.key === c.key ? (sort.down ? "▾" : "▴") : ""}
                      </span>
                    </button>
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {shown.map((row) => (
                <tr
                  key={props.rowKey(row)}
                  class={props.href ? "pressable" : props.rowClass?.(row)}
                  onClick={props.href && ((event) => openRow(event, props.href!(row)))}
                >
                  {columns.map((c) => (
                    <td key={c.key} class={`${c.numeric ? "number" : ""} ${c.class ?? ""}`}>
                      {c.cell ? c.cell(row) : <bdi>{c.value(row)}</bdi>}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {pages > 1 && (
        <nav class="paging" aria-label={`Pages of ${props.title}`}>
          <button type="button" disabled={page === 1} onClick={() => turn(page - 1)}>
            Previous
          </button>
          <span>
            rows {((page - 1) * PAGE + 1).toLocaleString("en")} to{" "}
            {Math.min(page * PAGE, order.length).toLocaleString("en")} of {order.length.toLocaleString("en")}
          </span>
          <button type="button" disabled={page === pages} onClick={() => turn(page + 1)}>
            Next
          </button>
        </nav>
      )}
    </section>
  );
}

/** Opens a page by a click on a row, unless the click was on a link or selected a text. */
function openRow(event: MouseEvent, url: string): void {
  if (event.defaultPrevented || !(event.target instanceof Element) || event.target.closest("a, button")) return;
  if (getSelection()?.isCollapsed === false) return;
  go(url);
}

/** Saves the rows of a table as a file. */
function download<R>(title: string, columns: Column<R>[], rows: readonly R[]): void {
  const text = csv(
    columns.map((c) => c.title),
    rows.map((row) => columns.map((c) => c.value(row))),
  );
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = `eno-${title.toLowerCase().replace(/[^a-z0-9]+/g, "-")}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
