// The extension's parts that need no browser.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { PublishedResult } from '../../webclient/lib/index.js'
import { checkedLimits } from '../../webclient/src/budget.js'
import {
  matchPattern,
  queryOf,
  readSearchPage,
  resultOf,
  sitePattern,
} from '../../webclient/extension/search-page.js'
import { LIMITS, problemOf, sitesOf, TRIAL_LIMITS } from '../../webclient/extension/settings.js'
import { placeFor, suggestionsFor } from '../../webclient/extension/suggestions.js'
import {
  answerInWords,
  oddsInWords,
  posteriorInWords,
  resultInWords,
} from '../../webclient/extension/sent-words.js'
import { nextLook, resultIsDue } from '../../webclient/extension/timing.js'
import {
  aboutShares,
  duration,
  meaningOf,
  nameOf,
  shareOf,
} from '../../webclient/extension/words.js'

const PAGE = readSearchPage('https://search.example/find?lang=en&q=%s')
const CHOSEN = { ...Object.fromEntries(LIMITS.map(([name, , start]) => [name, start])) }
const LIMITS_GIVEN = { ...CHOSEN, ...TRIAL_LIMITS }
const SETTINGS = {
  on: true,
  server: 'https://gateway.example',
  searchPage: '',
  limits: LIMITS_GIVEN,
  optIn: null,
}

test('a search page is an address with %s as the value of one parameter', () => {
  assert.deepEqual(PAGE, { origin: 'https://search.example', path: '/find', parameter: 'q' })
  assert.equal(matchPattern(PAGE), 'https://search.example/find*')
  assert.equal(sitePattern('https://search.example/find?q=%s'), 'https://search.example/*')
  assert.equal(readSearchPage('http://127.0.0.1:8080/?q=%s').origin, 'http://127.0.0.1:8080')
  for (const text of [
    '',
    'search.example/find?q=%s',
    'https://search.example/find',
    'https://search.example/%s',
    'https://search.example/find?q=about+%s',
    'https://search.example/find?q=%s&p=%s',
    'https://search.example/*?q=%s',
    'https://search.example/find?q=%s#top',
    'https://name:word@search.example/find?q=%s',
    'http://search.example/find?q=%s',
    'ftp://search.example/find?q=%s',
    'javascript:alert(1)?q=%s',
  ]) {
    assert.equal(readSearchPage(text), null, text)
  }
})

test('the query is read from the address of the search page, and of no other', () => {
  assert.equal(queryOf(PAGE, 'https://search.example/find?q=train+times&p=2#x'), 'train times')
  assert.equal(queryOf(PAGE, 'https://search.example/find?q=a%26b'), 'a&b')
  for (const address of [
    'https://search.example/find',
    'https://search.example/finder?q=a',
    'https://search.example/find/more?q=a',
    'https://search.example.evil.example/find?q=a',
    'https://search.example:8443/find?q=a',
    'http://search.example/find?q=a',
    'https://other.example/find?q=a',
    'about:blank',
    '',
  ]) {
    assert.equal(queryOf(PAGE, address), null, address)
  }
})

test('a result is a web page of another site, without fragment and password', () => {
  assert.equal(resultOf(PAGE, 'https://a.example/x?y=1#:~:text=z'), 'https://a.example/x?y=1')
  assert.equal(resultOf(PAGE, 'http://me:word@a.example/'), 'http://a.example/')
  for (const link of [
    'https://search.example/find?q=next',
    'javascript:alert(1)',
    'mailto:someone@a.example',
    'file:///etc/passwd',
    '/relative',
    '',
    null,
    undefined,
    7,
    {},
  ]) {
    assert.equal(resultOf(PAGE, link), null, String(link))
  }
})

test('every limit of the client is shown, with the value it has when nothing is chosen', () => {
  const required = LIMITS.filter(([, , start]) => start === null).map(([name]) => name)
  assert.deepEqual(required, [
    'epsilonPerReport',
    'deltaPerReport',
    'epsilonPerPeriod',
    'deltaPerPeriod',
    'periodS',
  ])
  const given = Object.fromEntries(required.map((name) => [name, TRIAL_LIMITS[name]]))
  assert.deepEqual(checkedLimits(given), { ...CHOSEN, ...given })
  assert.ok(LIMITS.every(([, label]) => label.length > 10))
})

test('settings are usable only when everything was chosen', () => {
  assert.equal(problemOf(SETTINGS), null)
  for (const [name] of LIMITS) {
    const limits = { ...LIMITS_GIVEN, [name]: NaN }
    assert.match(problemOf({ ...SETTINGS, limits }), /must be a number/)
  }
  const refused = {
    server: ['', 'gateway.example', 'http://gateway.example', 'https://gateway.example/?a=b'],
    searchPage: ['https://search.example/'],
    limits: [
      { ...LIMITS_GIVEN, epsilonPerReport: 0 },
      { ...LIMITS_GIVEN, epsilonPerPeriod: 1 },
      { ...LIMITS_GIVEN, deltaPerReport: 1 },
      { ...LIMITS_GIVEN, periodS: 0.5 },
    ],
    optIn: [
      { userId: '', token: 't' },
      { userId: 'u', token: '' },
      { userId: 'u', token: 'http://backend.example/token' },
      { userId: 'u', token: 'https://' },
    ],
  }
  for (const [name, values] of Object.entries(refused)) {
    for (const value of values) {
      assert.match(problemOf({ ...SETTINGS, [name]: value }), /must/, `${name} ${value}`)
    }
  }
})

test('a token may be the address of a backend, which needs permission too', () => {
  const backend = { userId: 'u', token: 'https://backend.example/token' }
  const token = { userId: 'u', token: 'news-app.secret' }
  assert.equal(problemOf({ ...SETTINGS, optIn: backend }), null)
  assert.equal(problemOf({ ...SETTINGS, optIn: token }), null)
  assert.deepEqual(sitesOf({ ...SETTINGS, optIn: token }), ['https://gateway.example/*'])
  assert.deepEqual(sitesOf({ ...SETTINGS, optIn: backend }), [
    'https://gateway.example/*',
    'https://backend.example/*',
  ])
})

test('permission is asked for the service and the search page only', () => {
  const searchPage = 'https://search.example/find?q=%s'
  assert.deepEqual(sitesOf(SETTINGS), ['https://gateway.example/*'])
  assert.deepEqual(sitesOf({ ...SETTINGS, searchPage }), [
    'https://gateway.example/*',
    'https://search.example/*',
  ])
  const manifest = JSON.parse(
    readFileSync(new URL('../../webclient/extension/manifest.json', import.meta.url), 'utf8'),
  )
  assert.deepEqual(manifest.permissions, ['alarms', 'scripting', 'storage'])
  assert.equal(manifest.host_permissions, undefined)
  assert.equal(manifest.content_scripts, undefined)
  assert.equal(manifest.incognito, 'not_allowed')
})

test('a service that is away is asked less and less often, also by a worker without memory', () => {
  const away = { code: 'try later', nextCallAtS: 1030 }
  let failures = 0
  const pauses = []
  for (let n = 0; n < 9; n++) {
    const next = nextLook(away, failures, 1000, 3600)
    pauses.push(next.atS - 1000)
    failures = next.failures
  }
  assert.deepEqual(pauses, [30, 60, 120, 240, 480, 960, 1920, 3600, 3600])
  assert.deepEqual(nextLook({ code: 'sent', nextCallAtS: 2800 }, failures, 1000, 3600), {
    atS: 2800,
    failures: 0,
  })
})

test('what the service asked to wait is waited for, and a clock set back does no harm', () => {
  const busy = { code: 'try later', nextCallAtS: 4600 }
  assert.equal(nextLook(busy, 3, 1000, 60).atS, 4600)
  assert.equal(nextLook({ code: 'waiting', nextCallAtS: 900 }, 0, 1000, 3600).atS, 1001)
  assert.equal(nextLook({ code: 'waiting', nextCallAtS: 1e9 }, 0, 1000, 3600).atS, 4600)
  assert.equal(resultIsDue(1000, 1010, 3600), false)
  assert.equal(resultIsDue(1000, 4600, 3600), true)
  assert.equal(resultIsDue(1000, 1010, 5), true)
  assert.equal(resultIsDue(9000, 1000, 3600), true)
})

const figures = (probability) => ({ probability, variance: 1e-6, low: 0, high: 1 })
const row = (query, url, p) => ({
  query,
  url,
  blend: figures(p),
  client: null,
  optin: null,
  optin_weight: 0.5,
  projected: p,
  disputed: false,
  filtered: null,
})
const queryRow = (query, p) => ({
  query,
  blend: figures(p),
  client: null,
  optin: null,
  optin_weight: 0.5,
  disputed: false,
  filtered: null,
})
const RESULT_BODY = {
  schema: 'blendstream/estimates/2',
  epoch: 7,
  agreement: null,
  records: [
    row('cats', 'https://cats.example/?a=1&b=<i>', 0.2),
    row('cats', 'javascript:alert(1)', 0.3),
  ],
  queries: [queryRow('cats', 0.5), { ...queryRow('cats & "dogs"', 0.1), disputed: true }],
  filtered: null,
}
const RESULT = PublishedResult.read(JSON.stringify(RESULT_BODY))

test('the address bar offers results first, then longer queries, as escaped text', () => {
  assert.deepEqual(
    suggestionsFor(RESULT, 'cats').map(({ content }) => content),
    ['https://cats.example/?a=1&b=<i>', 'cats & "dogs"'],
  )
  for (const { description } of suggestionsFor(RESULT, 'cat')) {
    assert.doesNotMatch(description.replace(/<\/?(url|dim)>|&#\d+;/g, ''), /[<>&"']/)
  }
  const marked = suggestionsFor(RESULT, 'cats').map(({ description }) => description)
  assert.deepEqual(
    marked.map((text) => text.includes(' % (disputed)')),
    [false, true],
  )
  assert.deepEqual(suggestionsFor(RESULT, ' '), [])
  assert.deepEqual(suggestionsFor(null, 'cats'), [])
})

test('text that is written from right to left ends with itself in the address bar', () => {
  const query = 'pay \u202emoc.knab'
  const document = { ...RESULT_BODY, queries: [queryRow(query, 0.5), queryRow('payעברית', 0.4)] }
  const offered = suggestionsFor(PublishedResult.read(JSON.stringify(document)), 'pay')
  assert.deepEqual(
    offered.map(({ description }) => description.split(' <')[0]),
    ['pay [U+202E]moc.knab', '\u2068payעברית\u2069'],
  )
  assert.equal(offered[0].content, query)
})

test('the address bar and the page say which estimate a share is', () => {
  const filtered = { ...figures(0.4), probability: 0.4 }
  const body = {
    schema: 'blendstream/estimates/2',
    epoch: 8,
    agreement: null,
    records: [{ ...row('cats', 'https://cats.example/', 0.2), filtered }],
    queries: [{ ...queryRow('cats', 0.5), filtered }],
    queries_at_least: true,
    filtered: {
      unlisted: [{ query: 'cats', url: 'https://rare.example/', filtered: figures(0.01) }],
      unlisted_queries: [{ query: 'cats and rain', filtered: figures(0.02) }],
    },
  }
  const result = PublishedResult.read(JSON.stringify(body))
  assert.deepEqual(
    suggestionsFor(result, 'cats').map(({ content }) => content),
    ['https://cats.example/', 'https://rare.example/', 'cats and rain'],
  )
  for (const { description } of suggestionsFor(result, 'cats')) {
    assert.match(description, /% (of searches )?\(filtered\)/)
  }
  assert.match(aboutShares(result), /^Filtered: .* epoch 8 from all remembered epochs/)
  assert.equal(aboutShares(RESULT), 'Of epoch 7 alone.')
  assert.equal(nameOf(RESULT.trends(1)[0]), '')
})

test('a query whose other results are not known has at least its share, and a result has its own', () => {
  for (const complete of [false, true]) {
    const body = {
      schema: 'blendstream/estimates/2',
      epoch: 8,
      agreement: null,
      records: [row('cats', 'https://cats.example/', 0.2)],
      queries: [queryRow('cats', 0.5)],
      queries_at_least: !complete,
      filtered: null,
    }
    const result = PublishedResult.read(JSON.stringify(body))
    const [share] = result.trends(1).map(shareOf)
    assert.equal(share, complete ? '50.00 %' : 'at least 50.00 %')
    assert.deepEqual(result.search('cats').map(shareOf), ['20.00 %'])
  }
})

test('Enter opens web pages only; everything else is a query', () => {
  const page = 'chrome-extension://id/results.html'
  assert.equal(placeFor('https://cats.example/', page), 'https://cats.example/')
  assert.equal(placeFor('cats & dogs', page), page + '?q=cats%20%26%20dogs')
  assert.equal(placeFor('javascript:alert(1)', page), page + '?q=javascript%3Aalert(1)')
})

test('every outcome has words, and durations are whole', () => {
  const device = readFileSync(new URL('../../webclient/src/device.js', import.meta.url), 'utf8')
  const declared = device.match(/@typedef \{('sent'[^}]*)\} ResultCode/)[1]
  const names = [...declared.matchAll(/'([^']+)'/g)].map((match) => match[1])
  assert.equal(names.length, 11)
  for (const name of names) assert.notEqual(meaningOf(name), meaningOf(''), name)
  assert.equal(duration(86400), '1 day')
  assert.equal(duration(5400), '90 minutes')
  assert.equal(duration(61), '61 seconds')
})

test('bounds of what was sent are rounded up, so none is promised that does not hold', () => {
  assert.deepEqual([4, 0.5, 20].map(oddsInWords), [
    '55 to 1',
    '1.7 to 1',
    'more than 1 000 000 to 1',
  ])
  assert.deepEqual(
    [4, 0.1, 20].map((e) => posteriorInWords(e)),
    ['36 %', '1.2 %', 'almost 100 %'],
  )
  for (let epsilon = 0.001; epsilon < 13; epsilon *= 1.01) {
    assert.ok(parseFloat(oddsInWords(epsilon)) >= Math.exp(epsilon), `${epsilon}`)
  }
})

test('an answer "none" names no record: its first cells only fill it up', () => {
  const entry = { randomizer: 'subset-or-none', listed: 9, cells: 10 }
  const none = [
    { cell: 0, query: 'a', url: 'b' },
    { cell: 9, query: null, url: null },
  ]
  assert.deepEqual(answerInWords(entry, none).texts, [])
  assert.match(answerInWords(entry, none).sentence, /None of the 9 listed records/)
  const other = { ...entry, randomizer: 'subset-selection' }
  assert.equal(answerInWords(other, none).texts.length, 2)
})

test('every result of a delivery has words', () => {
  const all = ['pending', 'dropped', 'sent', 'nothing new', 'refused by server', 'expired']
  for (const result of all) assert.ok(resultInWords(result).length > result.length, result)
})
