import { esmExternalRequirePlugin } from "vite";
import { defineConfig } from "vitest/config";

/** What Airflow's own page puts on globalThis for plugins. It must not be in the bundle: there is one React in a page. */
const host = {
  react: "React",
  "react-dom": "ReactDOM",
  "react/jsx-runtime": "ReactJSXRuntime",
  "react-router-dom": "ReactRouterDOM",
  "@chakra-ui/react": "ChakraUI",
  "@emotion/react": "EmotionReact",
};

export default defineConfig(({ command }) => ({
  define: command === "build" ? { "process.env.NODE_ENV": JSON.stringify("production") } : {},
  oxc: { jsx: { runtime: "automatic" } },
  // Some packages call require("react"), which a browser does not have.
  plugins: [esmExternalRequirePlugin({ external: Object.keys(host) })],
  build: {
    outDir: "bundle",
    emptyOutDir: true,
    copyPublicDir: true,
    target: "es2022",
    lib: { entry: "src/main.tsx", name: "AirflowPlugin", formats: ["umd"], fileName: () => "page.umd.js" },
    rolldownOptions: { output: { globals: host } },
  },
  test: { environment: "happy-dom", include: ["src/**/*.test.{ts,tsx}"] },
}));
