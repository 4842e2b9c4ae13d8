import { Page } from "../components/Page";

export function PlanPage() {
  return <Page title="Plan">{null}</Page>;
}
