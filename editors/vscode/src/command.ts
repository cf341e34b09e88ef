/** The command that starts the server: from the settings, the Python extension or PATH. */

import { execFile } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { delimiter, isAbsolute, join, resolve, sep } from "node:path";

import { type Event, extensions, type Uri, window, workspace } from "vscode";

/** A program and its arguments. */
export interface Command {
  program: string;
  words: string[];
  /** What chose the command, for the output channel. */
  origin: string;
}

/** The parts of the Python extension's API that are used here. */
interface PythonApi {
  environments: {
    getActiveEnvironmentPath(resource?: Uri): { path: string };
    resolveEnvironment(environment: { path: string }): Promise<{ executable: { uri?: Uri } } | undefined>;
    onDidChangeActiveEnvironmentPath: Event<unknown>;
  };
}

/** `-P` keeps Python from importing modules of the working directory, which is the user's repository. */
const MODULE = ["-P", "-m", "cfglint_train"];
const HAS_CFGLINT = "import importlib.util as u; raise SystemExit(not u.find_spec('cfglint_train'))";

/** Return the command that starts the server, or undefined if cfglint is not installed. */
export async function findCommand(): Promise<Command | undefined> {
  const settings = workspace.getConfiguration("cfglint");
  const [program, ...words] = settings.get<string[]>("path", []).map(fillVariables);
  if (program) {
    return { program: findProgram(program) ?? program, words: [...words, "server"], origin: "cfglint.path" };
  }
  const interpreter = fillVariables(settings.get<string>("interpreter", ""));
  if (interpreter) {
    const program = findProgram(interpreter) ?? interpreter;
    return { program, words: [...MODULE, "server"], origin: "cfglint.interpreter" };
  }
  const active = await findActiveInterpreter();
  if (active !== undefined && (await hasCfglint(active))) {
    return { program: active, words: [...MODULE, "server"], origin: "the interpreter of the Python extension" };
  }
  const installed = findProgram("cfglint");
  return installed === undefined ? undefined : { program: installed, words: ["server"], origin: "PATH" };
}

/** Return the API of the Python extension, or undefined if it is not installed or the workspace is not trusted. */
export async function getPythonApi(): Promise<PythonApi | undefined> {
  const extension = extensions.getExtension<Partial<PythonApi> | undefined>("ms-python.python");
  if (extension === undefined || !workspace.isTrusted) {
    return undefined;
  }
  try {
    const api = await extension.activate();
    return api?.environments === undefined ? undefined : { environments: api.environments };
  } catch {
    return undefined; // the extension is broken, which it says itself
  }
}

async function findActiveInterpreter(): Promise<string | undefined> {
  const api = await getPythonApi();
  if (api === undefined) {
    return undefined;
  }
  const resource = window.activeTextEditor?.document.uri ?? workspace.workspaceFolders?.[0]?.uri;
  const { environments } = api;
  const environment = await environments
    .resolveEnvironment(environments.getActiveEnvironmentPath(resource))
    .catch(() => undefined);
  return environment?.executable.uri?.fsPath;
}

function hasCfglint(interpreter: string): Promise<boolean> {
  return new Promise((settle) => {
    execFile(interpreter, ["-P", "-c", HAS_CFGLINT], { timeout: 10_000 }, (error) => {
      settle(error === null);
    });
  });
}

function fillVariables(word: string): string {
  return word.replaceAll("${workspaceFolder}", workspace.workspaceFolders?.[0]?.uri.fsPath ?? ".");
}

/**
 * Return the absolute path of a program, or undefined. A name without a folder is searched for in the absolute folders
 * of PATH only: a repository must not choose the program.
 */
function findProgram(word: string): string | undefined {
  const endings = process.platform === "win32" && !word.endsWith(".exe") ? [".exe"] : [""];
  const root = workspace.workspaceFolders?.[0]?.uri.fsPath;
  const folders = (process.env.PATH ?? "").split(delimiter).filter(isAbsolute);
  const candidates =
    word.includes("/") || word.includes(sep)
      ? [root === undefined ? resolve(word) : resolve(root, word)]
      : folders.map((folder) => join(folder, word));
  return candidates.flatMap((candidate) => endings.map((ending) => candidate + ending)).find(isExecutable);
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
