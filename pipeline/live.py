"""The page that follows the curves of stages under way; Prefect's page of an artifact shows what it was when opened."""

import secrets

from starlette.responses import HTMLResponse

POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src data:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
# What comes from the server is set as text, and as the address of a picture: nothing of it can run.
PAGE = """<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>polygrain: curves</title>
<style nonce="{nonce}">
body {{ font: 16px system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem;
  background: #fff; color: #1c2733 }}
h1 {{ font-size: 1.3rem }} h2 {{ font-size: 1rem; margin: 2rem 0 .3rem }} p {{ margin: .2rem 0 .6rem; color: #5c6773 }}
img {{ max-width: 100% }} a {{ color: #2563c9 }}
@media (prefers-color-scheme: dark) {{ body {{ background: #1b1d21; color: #e6e9ed }} p {{ color: #98a2ae }} }}
</style>
<h1>Curves of the stages that trained last</h1><p id="said">Asking the server ...</p><p><a href="/runs">All runs</a></p>
<main></main>
<script nonce="{nonce}">
const main = document.querySelector("main"), said = document.getElementById("said"), shown = new Map()
const ask = {{artifacts: {{key: {{like_: "curves-"}}}}, sort: "CREATED_DESC", limit: 8}}
async function look() {{
  const key = localStorage.getItem("prefect-password")
  const headers = {{"Content-Type": "application/json", Authorization: "Basic " + key}}
  const reply = await fetch("/api/artifacts/filter", {{method: "POST", headers, body: JSON.stringify(ask)}})
  if (!reply.ok) throw new Error(reply.status === 401 ? "open it by a link that `polygrain ui` prints" : reply.status)
  for (const {{id, data}} of (await reply.json()).reverse()) {{
    const [, name, line] = data.match(/^\\*\\*(.*?)\\*\\* · (.*)/) ?? []
    const [picture] = data.match(/data:image\\/svg\\+xml;base64,[A-Za-z0-9+/=]*/) ?? []
    if (!picture) continue
    if (!shown.has(id)) {{
      const parts = ["section", "h2", "p", "img"].map(word => document.createElement(word))
      parts[0].append(...parts.slice(1))
      shown.set(id, parts)
      main.prepend(parts[0])
    }}
    const [, title, text, image] = shown.get(id)
    Object.assign(image, {{src: picture, alt: "curves of " + name}})
    ;[title.textContent, text.textContent] = [name, line]
  }}
  said.textContent = shown.size ? "Renewed by itself." : "No stage has trained yet."
}}
async function follow() {{
  try {{ await look() }} catch (error) {{ said.textContent = "The server does not answer: " + error.message }}
  setTimeout(follow, 3000)
}}
follow()
</script>
"""


def page() -> HTMLResponse:
    """The page, which holds nothing of its own: it asks the API, by what the browser was let in with."""
    nonce = secrets.token_urlsafe(16)
    headers = {"content-security-policy": POLICY.format(nonce=nonce), "cache-control": "no-store"}
    return HTMLResponse(PAGE.format(nonce=nonce), headers=headers)
