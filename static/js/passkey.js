// form[data-passkey] is filled by a passkey: data-passkey are the options, its answer goes into the field "passkey".
const bytes = (text) => {
  const plain = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(plain, (letter) => letter.charCodeAt(0));
};

const text = (buffer) => {
  const plain = String.fromCharCode(...new Uint8Array(buffer));
  return btoa(plain).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
};

const named = (list) => (list || []).map((each) => ({ ...each, id: bytes(each.id) }));

async function made(options) {
  const publicKey = {
    ...options,
    challenge: bytes(options.challenge),
    user: { ...options.user, id: bytes(options.user.id) },
    excludeCredentials: named(options.excludeCredentials),
  };
  const passkey = await navigator.credentials.create({ publicKey });
  return [passkey, { attestationObject: text(passkey.response.attestationObject) }];
}

async function used(options) {
  const publicKey = {
    ...options,
    challenge: bytes(options.challenge),
    allowCredentials: named(options.allowCredentials),
  };
  const passkey = await navigator.credentials.get({ publicKey });
  const { authenticatorData, signature, userHandle } = passkey.response;
  const said = { authenticatorData: text(authenticatorData), signature: text(signature) };
  return [passkey, userHandle ? { ...said, userHandle: text(userHandle) } : said];
}

document.addEventListener("submit", async (event) => {
  const form = event.target.closest("form[data-passkey]");
  if (!form || form.elements.passkey.value) return;
  event.preventDefault();
  const problem = form.querySelector("[data-passkey-problem]");
  problem.hidden = true;
  try {
    const options = JSON.parse(form.dataset.passkey);
    const [passkey, response] = await (options.user ? made(options) : used(options));
    response.clientDataJSON = text(passkey.response.clientDataJSON);
    const rawId = text(passkey.rawId);
    form.elements.passkey.value = JSON.stringify({ id: rawId, rawId, type: passkey.type, response });
    form.requestSubmit();
  } catch (error) {
    problem.hidden = false;
    problem.textContent =
      error.name === "InvalidStateError"
        ? "This device has a passkey for your account already."
        : "No passkey was given. Try again, or choose another way.";
  }
});
