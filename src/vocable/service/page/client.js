// Requests to the service. The token stays in this tab.

const KEY = "vocable token";

/** What the service answers when it does not do what it is asked for. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function keepToken(token) {
  sessionStorage.setItem(KEY, token);
}

/** The JSON that is answered; a body makes it a POST. */
export async function request(path, { body, signal } = {}) {
  const headers = {}, token = sessionStorage.getItem(KEY);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers["Content-Type"] = "application/json";
  const method = body ? "POST" : "GET";
  let response;
  try {
    response = await fetch(path, { method, headers, signal, body: body && JSON.stringify(body) });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Refused(0, "The service does not answer.");
  }
  const answer = await response.json().catch(() => ({ error: `The service answers ${response.status}.` }));
  if (!response.ok) throw new Refused(response.status, answer.error);
  return answer;
}
