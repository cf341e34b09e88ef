/** cfglint in VS Code: finds and starts `cfglint server`; the server does all the checking. */

import { isDeepStrictEqual } from "node:util";

import { commands, type ExtensionContext, type ProviderResult, Uri, window, workspace } from "vscode";
import type { Middleware } from "vscode-languageclient/node";

import { findCommand, getPythonApi } from "./command";
import { showReport } from "./report";
import { Server } from "./server";
import { Status } from "./status";

const MISSING = "cfglint is not installed. Run: pip install 'cfglint-train[editor]'";
const SETTINGS = "Open Settings";
const OUTPUT = "Show Output";

let server: Server | undefined;
let lastStep = Promise.resolve();

export async function activate(context: ExtensionContext): Promise<void> {
  const output = window.createOutputChannel("cfglint", { log: true });
  const status = new Status();
  let isWatching = false;

  const update = (): void => {
    if (server !== undefined) {
      status.update(server.client).catch((error: unknown) => {
        output.warn(String(error));
      });
    }
  };
  const report = (reason: string): void => {
    output.error(reason);
    status.showFailure(reason);
    setRunning(false);
    void window.showErrorMessage(`cfglint: no checks in this window. ${reason}`, SETTINGS, OUTPUT).then((choice) => {
      if (choice === SETTINGS) {
        void commands.executeCommand("workbench.action.openSettings", "cfglint");
      } else if (choice === OUTPUT) {
        output.show();
      }
    });
  };
  const middleware: Middleware = {
    handleDiagnostics: (uri, diagnostics, next) => {
      next(uri, diagnostics);
      update();
    },
    executeCommand: (command, words: unknown[], next) => {
      const active = window.activeTextEditor?.document.uri.toString();
      return next(command, words.length > 0 || active === undefined ? words : [active]) as ProviderResult<unknown>;
    },
    window: {
      showDocument: async (params, token, next) => {
        const uri = Uri.parse(params.uri);
        if (params.external !== true || uri.scheme !== "file") {
          return next(params, token);
        }
        await showReport(uri);
        return { success: true };
      },
    },
  };
  const restart = (isForced = true): Promise<void> => {
    lastStep = lastStep.then(async () => {
      try {
        const command = await findCommand();
        if (!isForced && server?.client.isRunning() && isDeepStrictEqual(command, server.command)) {
          return;
        }
        await server?.stop();
        server = undefined;
        status.hide();
        setRunning(false);
        if (command === undefined) {
          report(MISSING);
          return;
        }
        output.info(`${command.program} ${command.words.join(" ")} (from ${command.origin})`);
        const next = new Server(command, output, middleware, report);
        await next.start();
        server = next;
        setRunning(true);
        update();
      } catch (error) {
        report(error instanceof Error ? error.message : String(error));
      } finally {
        await watchInterpreter();
      }
    });
    return lastStep;
  };
  /** Follow the interpreter of the Python extension, once there is one and the workspace is trusted. */
  const watchInterpreter = async (): Promise<void> => {
    const python = isWatching ? undefined : await getPythonApi();
    if (python !== undefined) {
      isWatching = true;
      context.subscriptions.push(python.environments.onDidChangeActiveEnvironmentPath(() => restart(false)));
    }
  };

  context.subscriptions.push(
    output,
    status,
    commands.registerCommand("cfglint.restart", () => restart()),
    window.onDidChangeActiveTextEditor(update),
    workspace.onDidGrantWorkspaceTrust(() => restart(false)),
    workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration("cfglint.path") || event.affectsConfiguration("cfglint.interpreter")) {
        void restart();
      }
    }),
  );
  await restart();
}

export async function deactivate(): Promise<void> {
  await lastStep;
  await server?.stop();
}

function setRunning(isRunning: boolean): void {
  void commands.executeCommand("setContext", "cfglint.isRunning", isRunning);
}
