import { Page } from "../components/Page";

export function TimelinePage() {
  return <Page title="Timeline">{null}</Page>;
}
