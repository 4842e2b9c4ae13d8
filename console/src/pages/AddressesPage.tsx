import { Page } from "../components/Page";

export function AddressesPage() {
  return <Page title="Addresses">{null}</Page>;
}
