/** The verdict of the active file in the status bar. */

import { languages, StatusBarAlignment, ThemeColor, window } from "vscode";
import { CodeLensRequest, type LanguageClient } from "vscode-languageclient/node";

import { LANGUAGES } from "./server";

/** The item of the status bar: a verdict, a reason why there is none, or nothing. */
export class Status {
  private readonly item = window.createStatusBarItem("cfglint.verdict", StatusBarAlignment.Left, -10);
  private requests = 0;

  constructor() {
    this.item.name = "cfglint";
  }

  /** Ask the server for the verdict of the active file, and show it. */
  async update(client: LanguageClient): Promise<void> {
    const request = ++this.requests;
    const document = window.activeTextEditor?.document;
    const verdicts: string[] = [];
    if (document !== undefined && languages.match(LANGUAGES, document) > 0 && client.isRunning()) {
      const lenses = await client.sendRequest(CodeLensRequest.type, {
        textDocument: client.code2ProtocolConverter.asTextDocumentIdentifier(document),
      });
      const commands = (lenses ?? []).flatMap((lens) => lens.command ?? []);
      verdicts.push(...commands.filter(({ command }) => command === "cfglint.report").map(({ title }) => title));
    }
    if (request === this.requests) {
      this.showVerdicts(verdicts);
    }
  }

  /** Show that the server does not run. */
  showFailure(reason: string): void {
    this.requests++;
    this.item.text = "$(error) cfglint";
    this.item.tooltip = `${reason}\nClick to start the server again.`;
    this.item.command = "cfglint.restart";
    this.item.backgroundColor = new ThemeColor("statusBarItem.errorBackground");
    this.item.show();
  }

  hide(): void {
    this.requests++;
    this.item.hide();
  }

  dispose(): void {
    this.item.dispose();
  }

  private showVerdicts(verdicts: string[]): void {
    const worst = verdicts.find((verdict) => !verdict.startsWith("fits")) ?? verdicts[0];
    if (worst === undefined) {
      this.item.hide();
      return;
    }
    const isFitting = worst.startsWith("fits");
    this.item.text = `${isFitting ? "$(check)" : "$(warning)"} ${/^.*? GiB/.exec(worst)?.[0] ?? worst}`;
    this.item.tooltip = `cfglint: ${verdicts.join("\n")}\nClick to open the report.`;
    this.item.command = "cfglint.report";
    this.item.backgroundColor = isFitting ? undefined : new ThemeColor("statusBarItem.warningBackground");
    this.item.show();
  }
}
