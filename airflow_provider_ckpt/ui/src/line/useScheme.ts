import { useSyncExternalStore } from "react";

/** Airflow's page has its colour scheme as a class of the document; what is painted on a canvas does not follow by itself. */
export function useScheme(): string {
  return useSyncExternalStore(subscribe, () => document.documentElement.className);
}

function subscribe(changed: () => void): () => void {
  const observer = new MutationObserver(changed);
  observer.observe(document.documentElement, { attributeFilter: ["class", "style"] });
  return () => observer.disconnect();
}
