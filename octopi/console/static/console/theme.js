// Before anything is painted: the colours that were chosen last.
const chosenTheme = localStorage.getItem("octopi-theme");
if (chosenTheme) document.documentElement.dataset.theme = chosenTheme;
