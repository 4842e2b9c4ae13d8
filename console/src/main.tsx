import { render } from "preact";
import { Empty } from "./components/Answered";
import { Page } from "./components/Page";
import { Shell } from "./components/Shell";
import { applyTheme, themeNow } from "./components/theme";
import { startEvents } from "./live";
import { AddressesPage } from "./pages/AddressesPage";
import { FabricPage } from "./pages/FabricPage";
import { ObjectsPage } from "./pages/ObjectsPage";
import { OverviewPage } from "./pages/OverviewPage";
import { PathPage } from "./pages/PathPage";
import { PlanPage } from "./pages/PlanPage";
import { TimelinePage } from "./pages/TimelinePage";
import { startRouter, usePlace } from "./router";
import "./styles/main.css";

/** The page that a path names. */
function pageOf(path: string) {
  switch (path) {
    case "/":
      return <OverviewPage />;
    case "/objects":
      return <ObjectsPage />;
    case "/fabric":
      return <FabricPage />;
    case "/timeline":
      return <TimelinePage />;
    case "/plan":
      return <PlanPage />;
    case "/addresses":
      return <AddressesPage />;
  }
  const object = objectOf(path);
  if (object !== undefined) return <PathPage key={object} object={object} />;
  return (
    <Page title="No such page">
      <Empty title="There is no page with this address.">
        Begin at <a href="/">the first page</a>, or press / to find an object.
      </Empty>
    </Page>
  );
}

/** The object of `/path/KIND/NAME` or `/path/KIND/NAMESPACE/NAME`. */
function objectOf(path: string): string | undefined {
  const match = /^\/path\/([^/]+)\/([^/]+)(?:\/([^/]+))?$/.exec(path);
  if (!match) return undefined;
  try {
    return match.slice(1).filter((part) => part !== undefined).map(decodeURIComponent).join("/");
  } catch {
    return undefined;
  }
}

function Console() {
  const { path } = usePlace();
  return <Shell>{pageOf(path)}</Shell>;
}

applyTheme(themeNow());
startRouter();
startEvents();
const root = document.getElementById("app");
if (root) render(<Console />, root);
