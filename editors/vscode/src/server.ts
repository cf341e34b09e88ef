/** The server's process, and the client that speaks to it. */

import { type ChildProcess, spawn } from "node:child_process";
import { homedir } from "node:os";
import { setTimeout } from "node:timers/promises";

import { type LogOutputChannel, workspace } from "vscode";
import {
  CloseAction,
  type CloseHandlerResult,
  type ErrorHandler,
  type ErrorHandlerResult,
  LanguageClient,
  type Message,
  type Middleware,
} from "vscode-languageclient/node";

import type { Command } from "./command";

export const LANGUAGES = ["yaml", "json", "jsonc", "python", "shellscript", "toml"].map((language) => ({
  scheme: "file",
  language,
}));

/** Characters of the standard error output that are kept to explain why a server ended. */
const MAX_COMPLAINT = 4000;
const ENDED = "The server ended without a message.";
/** Milliseconds in which a server that closed its output must end. */
const MAX_END = 2000;

/** A client whose own errors go to the output channel; `Server` says once why there are no checks. */
class QuietClient extends LanguageClient {
  override error(message: string, data?: unknown): void {
    super.error(message, data, false);
  }
}

/** A server that is running or has ended, with its client. */
export class Server {
  readonly client: LanguageClient;
  private process: ChildProcess | undefined;
  private complaint = "";
  private ended: Promise<unknown> = Promise.resolve();
  private isStarted = false;
  private failStart: (error: Error) => void = () => undefined;

  constructor(
    readonly command: Command,
    output: LogOutputChannel,
    middleware: Middleware,
    report: (reason: string) => void,
  ) {
    this.client = new QuietClient("cfglint", "cfglint", () => this.spawn(), {
      documentSelector: LANGUAGES,
      outputChannel: output,
      middleware,
      initializationFailedHandler: () => false,
    });
    this.client.clientOptions.errorHandler = new Handler(
      this.client.createDefaultErrorHandler(),
      () => this.isStarted,
      () => {
        if (this.isStarted) {
          report(this.explain(ENDED));
        } else {
          this.failStart(new Error(ENDED));
        }
      },
    );
  }

  /** Start the server. Raise an error that says why it did not start. */
  async start(): Promise<void> {
    try {
      // The client's own promise is never settled if the server ends before it has answered.
      const failure = new Promise<never>((_, fail) => {
        this.failStart = fail;
      });
      await Promise.race([this.client.start(), failure]);
      this.isStarted = true;
    } catch (error) {
      await Promise.race([this.ended, setTimeout(MAX_END)]);
      await this.stop();
      throw new Error(this.explain(error instanceof Error ? error.message : String(error)), { cause: error });
    }
  }

  /** Stop the server; end its process if it does not answer. */
  async stop(): Promise<void> {
    await Promise.race([this.client.dispose().catch(() => undefined), setTimeout(MAX_END)]);
    this.process?.kill();
  }

  private async spawn(): Promise<ChildProcess> {
    const folder = workspace.isTrusted ? workspace.workspaceFolders?.[0]?.uri.fsPath : undefined;
    const started = spawn(this.command.program, this.command.words, { cwd: folder ?? homedir() });
    this.process = started;
    this.complaint = "";
    started.stderr.on("data", (data: Buffer) => {
      this.complaint = (this.complaint + data.toString()).slice(-MAX_COMPLAINT);
    });
    this.ended = new Promise((settle) => {
      started.once("close", settle);
    });
    await new Promise((settle, fail) => {
      started.once("spawn", settle);
      started.once("error", fail);
    });
    return started;
  }

  /** Return what the server last wrote to standard error, or another reason if it wrote nothing. */
  private explain(reason: string): string {
    const last = this.complaint.trim().split("\n").at(-1);
    return last ? last.replace(/^(cfglint: )?error: /, "") : reason;
  }
}

/** The client's own handler of errors, except that a server that could not start is not started again. */
class Handler implements ErrorHandler {
  constructor(
    private readonly inner: ErrorHandler,
    private readonly isStarted: () => boolean,
    private readonly report: () => void,
  ) {}

  error(error: Error, message?: Message, count?: number): ErrorHandlerResult | Promise<ErrorHandlerResult> {
    return this.inner.error(error, message, count);
  }

  async closed(): Promise<CloseHandlerResult> {
    const result = this.isStarted() ? await this.inner.closed() : { action: CloseAction.DoNotRestart };
    if (result.action === CloseAction.DoNotRestart) {
      this.report();
    }
    return { ...result, handled: true };
  }
}
