// One question to the admin routes. Errors carry the gateway's own words.

export class Refused extends Error {}

export async function ask(token, path, { post, missing } = {}) {
  const response = await fetch(`/admin/${path}`, {
    method: post === undefined ? "GET" : "POST",
    headers: { authorization: `Bearer ${token}`, "x-changeover-by": "the operator's page" },
    body: post === undefined ? undefined : JSON.stringify(post),
    cache: "no-store",
    signal: AbortSignal.timeout(10000),
  });
  if (response.status === 404 && missing !== undefined) return missing;
  const body = await response.json();
  if (response.status === 401) throw new Refused(body.error.message);
  if (!response.ok) throw new Error(body.error.message);
  return body;
}
