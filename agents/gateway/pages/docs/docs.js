"use strict";

const dark = matchMedia("(prefers-color-scheme: dark)");
const dress = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", dress);
dress();

SwaggerUIBundle({
  url: "/openapi.json",
  domNode: document.getElementById("api"),
  // The open operation is in the URL, so that it can be shared.
  deepLinking: true,
  // A link inside each button as well would be read out twice.
  plugins: [({ React }) => ({
    components: { DeepLink: ({ text }) => React.createElement("span", null, text) },
  })],
  // The default sends the description to another host.
  validatorUrl: null,
  // Its colours have too little contrast.
  syntaxHighlight: { activated: false },
});
