// Browsers refuse workers to pages that are opened from a disk, so the search then runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      const frame = document.createElement("iframe")
      frame.hidden = true
      frame.onload = () => this.begin(frame.contentWindow, new URL(url, location.href).href)
      frame.srcdoc = "<!doctype html>"
      document.documentElement.append(frame)
    }

    begin(inside, url) {
      // What the worker posts goes to the page.
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      const script = inside.document.createElement("script")
      script.src = url
      script.onload = () => {
        this.inside = inside
        this.waiting.splice(0).forEach(data => this.postMessage(data))
      }
      inside.document.head.append(script)
    }

    postMessage(data) {
      if (this.inside) this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }))
      else this.waiting.push(data)
    }
  }
}
