// The search of pages that are opened as files. Browsers start no Worker for a file: URL, so a hidden frame runs the
// worker's script. The two exchange the same messages as a page and its Worker.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = [] // messages until the script has been loaded
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inner = this.frame.contentWindow
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      inner.importScripts = (...urls) =>
        urls.reduce((before, one) => before.then(() => this.load(one)), Promise.resolve())
      this.load(new URL(url, location.href).href).then(() => {
        const waiting = this.waiting
        this.waiting = undefined
        waiting.forEach((data) => this.deliver(data))
      })
    }

    load(url) {
      return new Promise((loaded, failed) => {
        const script = this.frame.contentDocument.createElement("script")
        Object.assign(script, { src: url, onload: loaded, onerror: () => failed(new Error(`cannot load ${url}`)) })
        this.frame.contentDocument.body.append(script)
      })
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else this.deliver(data)
    }

    deliver(data) {
      const inner = this.frame.contentWindow
      inner.dispatchEvent(new inner.MessageEvent("message", { data }))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
