import { Switch } from "@chakra-ui/react";

import { REFRESH } from "../api/queries";
import { useLive } from "./live";

/** Turns the refreshing of the page on and off. */
export function LiveSwitch() {
  const { isOn, setOn } = useLive();
  return (
    <Switch.Root checked={isOn} colorPalette="green" onCheckedChange={(event) => setOn(event.checked)} size="sm">
      <Switch.HiddenInput />
      <Switch.Control />
      <Switch.Label whiteSpace="nowrap">live, {REFRESH / 1000} s</Switch.Label>
    </Switch.Root>
  );
}
