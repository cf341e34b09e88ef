/** The HTML report beside the editor. It also works where the server runs on another machine. */

import { posix } from "node:path";

import { type Uri, ViewColumn, type WebviewPanel, window, workspace } from "vscode";

let panel: WebviewPanel | undefined;

/** Show a report that the server wrote into a file. */
export async function showReport(uri: Uri): Promise<void> {
  const page = new TextDecoder().decode(await workspace.fs.readFile(uri));
  if (panel === undefined) {
    panel = window.createWebviewPanel(
      "cfglint.report",
      "cfglint",
      { viewColumn: ViewColumn.Beside, preserveFocus: true },
      { enableScripts: false, localResourceRoots: [] },
    );
    panel.onDidDispose(() => {
      panel = undefined;
    });
  }
  panel.title = `cfglint: ${posix.basename(uri.path, ".html")}`;
  panel.webview.html = page;
  panel.reveal(undefined, true);
}
