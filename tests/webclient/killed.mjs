// A device in a process of its own, to be killed: killed.mjs FOLDER SERVER NOW_S. Prints outcomes.
import { FileStore } from '../../webclient/lib/file-store.js'
import { Device } from '../../webclient/lib/index.js'

const [folder, server, nowS] = process.argv.slice(2)
const limits = {
  epsilonPerReport: 4,
  deltaPerReport: 0,
  epsilonPerPeriod: 8,
  deltaPerPeriod: 0,
  periodS: 30 * 86400,
}
const store = new FileStore(folder)
const device = new Device({ server, limits, store }, { clock: () => Number(nowS) })
await device.record('weather', 'https://weather.example/')
console.log((await device.maybeReport({ atOnce: true })).code)
