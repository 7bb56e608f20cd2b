"use strict";

const dark = matchMedia("(prefers-color-scheme: dark)");
const dress = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", dress);
dress();

SwaggerUIBundle({
  url: "/openapi.json",
  domNode: document.getElementById("api"),
  // An open operation is in the address bar, to be passed on.
  deepLinking: true,
  // A link inside each button as well would be read out twice.
  plugins: [({ React }) => ({
    components: { DeepLink: ({ text }) => React.createElement("span", null, text) },
  })],
  // Its default sends the description to another host.
  validatorUrl: null,
  // Its colours are too pale on their ground.
  syntaxHighlight: { activated: false },
});
