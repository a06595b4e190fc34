// Requests to the server. All URLs are relative to the page's own URL, which contains the secret.

function address(what, wanted = {}) {
  const given = Object.entries(wanted).filter(([name, value]) => value != null && (value !== "" || name.startsWith("in.")));
  return `ask/${what}?${new URLSearchParams(given)}`;
}

async function answered(what, wanted, signal) {
  let response;
  try {
    response = await fetch(address(what, wanted), { signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The viewer does not respond. Is it still running in the terminal?");
  }
  if (!response.ok) {
    const said = await response.json().catch(() => ({ error: response.statusText }));
    throw new Error(said.error);
  }
  return response;
}

/** Send a request with the parameters `wanted`, and return the JSON of the response; reject with an Error if it fails. */
export async function ask(what, wanted, signal) {
  return (await answered(what, wanted, signal)).json();
}

/** Request a sheet of pictures, and return its entries. The caller has to revoke the `url` of each entry's picture. */
export async function askSheet(what, wanted, signal) {
  const buffer = await (await answered(what, wanted, signal)).arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  const entries = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  let at = 4 + length;
  for (const entry of entries) {
    entry.url = entry.picture ? URL.createObjectURL(new Blob([new Uint8Array(buffer, at, entry.picture)], { type: "image/jpeg" })) : "";
    at += entry.picture;
  }
  return entries;
}

/** Return the URL of a picture, for an <img>. */
export const picture = address;
